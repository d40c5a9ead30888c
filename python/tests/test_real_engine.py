"""The command with the engine that was built: skipped where there is none, failed if INCAST_REQUIRE_ENGINE is set."""

import json
import signal
import subprocess
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import uproot
from incast.engine.transports import chosen_across, one_thread, simulated
from referencing import Registry, Resource

from tests.conftest import DEADLINE_S, Incast, wait_for_line
from tests.fake_engine import RESULT

SCHEMAS = Path(__file__).parents[2] / "schema"
QUICK = ("--events", "2000", "--mfp-size", "16KiB")


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / name).read_text())


def result_validator() -> Any:
    parts = [(part, Resource.from_contents(schema(part))) for part in ("config.schema.json", "network.schema.json")]
    registry: Registry[Any] = Registry().with_resources(parts)
    return jsonschema.Draft202012Validator(schema("result.schema.json"), registry=registry)


@pytest.mark.parametrize("roles", ["folded", "split"])
@pytest.mark.parametrize("protocol", ["push", "pull"])
@pytest.mark.parametrize("transport", [one_thread(), chosen_across()])
def test_every_event_is_built_and_verified(real_incast: Incast, transport: str, protocol: str, roles: str) -> None:
    result = result_of(
        real_incast("run", *QUICK, "--transport", transport, "--protocol", protocol, "--roles", roles, "--json")
    )
    assert result["events"] >= 2000
    assert (result["lost_events"], result["incomplete_events"], result["verify_errors"]) == (0, 0, 0)
    assert result["verified"] == "full"
    assert result["verified_meps"] == result["accounting"]["meps_committed"] > 0
    assert result["time_domain"] == "real"


@pytest.mark.parametrize(
    "options", [("--transport", one_thread()), ("--transport", simulated()), ("--trigger-rate", "5kHz")]
)
def test_a_result_keeps_to_its_schema(real_incast: Incast, options: tuple[str, ...]) -> None:
    result = result_of(real_incast("run", *QUICK, *options, "--json"))
    result_validator().validate(result)


def test_the_schema_refuses_a_result_with_a_wrong_figure(real_incast: Incast) -> None:
    result = result_of(real_incast("run", *QUICK, "--transport", one_thread(), "--json"))
    validator = result_validator()
    wrongs: list[dict[str, Any]] = [
        {"events": -1},
        {"verified": "perhaps"},
        {"time_domain": "imaginary"},
        {"latency_ns": {}},
    ]
    for wrong in wrongs:
        assert not validator.is_valid(result | wrong), wrong
    for key in ("goodput_bytes_per_s", "events", "lost_events", "verified", "seed", "config", "machine", "versions"):
        assert not validator.is_valid({name: value for name, value in result.items() if name != key}), key


def test_the_fake_engines_result_is_one_of_the_engine(real_incast: Incast) -> None:
    """Else the other tests would test against a result that no engine writes."""
    result = result_of(real_incast("run", *QUICK, "--transport", one_thread(), "--json"))
    validator = result_validator()
    assert set(RESULT) <= set(result)
    # The fake's configuration has only the keys that the summary shows.
    validator.validate(result | RESULT | {"config": result["config"], "sizes": result["sizes"] | RESULT["sizes"]})


def test_virtual_time_is_labelled(real_incast: Incast) -> None:
    done = real_incast("run", *QUICK, "--transport", simulated())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("VIRTUAL TIME")


def test_what_is_not_verified_is_labelled(real_incast: Incast) -> None:
    assert "not verified" in real_incast("run", *QUICK, "--transport", one_thread(), "--sink", "null").stdout


def test_the_result_directory_and_its_name(real_incast: Incast) -> None:
    done = real_incast("run", *QUICK)
    assert done.returncode == 0, done.stderr
    (directory,) = (real_incast.folder / "incast-results").iterdir()
    result = json.loads((directory / "result.json").read_text())
    assert directory.name.endswith("-" + result["config"]["transport"]["name"])
    assert {"result.json", "samples.jsonl", "config.toml", "log.txt", "ledger.bin"} <= {
        path.name for path in directory.iterdir()
    }
    for line in (directory / "samples.jsonl").read_text().splitlines():
        assert "node" in json.loads(line)


def test_the_config_of_a_run_repeats_it(real_incast: Incast) -> None:
    options = ("--transport", simulated(), "--nodes", "3", "--seed", "7", *QUICK)
    first = result_of(real_incast("run", *options, "--output", "first", "--json"))
    again = result_of(real_incast("run", "first/config.toml", "--output", "again", "--json"))
    assert again["config"] == first["config"]
    assert again["trace_hash"] == first["trace_hash"]


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        (["--nodes", "0"], "run.nodes", "0"),
        (["--nodes", "many"], "run.nodes", "many"),
        (["--transport", "pigeon"], "transport.name", "pigeon"),
        (["--schedule", "never"], "protocol.schedule", "never"),
        (["--duration", "10 parsecs"], "run.duration", "10 parsecs"),
        (["--set", "run.colour=blue"], "run.colour", ""),
        (["absent.toml"], "absent.toml", ""),
    ],
)
def test_a_bad_config_is_one_line_that_names_it(real_incast: Incast, options: list[str], key: str, value: str) -> None:
    done = real_incast("run", *options)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert key in done.stderr
    assert value in done.stderr
    assert done.stdout == ""
    assert not list(real_incast.folder.iterdir()), "nothing is left behind by a run that never was"


@pytest.mark.parametrize("transport", [one_thread(), chosen_across()])
def test_ctrl_c_drains_and_reports(real_incast: Incast, transport: str) -> None:
    command = real_incast.command("run", "--transport", transport, "--duration", "10min", "--warm-up", "0s", "--json")
    with subprocess.Popen(
        command,
        cwd=real_incast.folder,
        env=real_incast.full_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_line("measuring", process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    result = json.loads(output)
    assert result["status"] == "interrupted"
    assert result["lost_events"] == 0


def test_info_names_the_transports(real_incast: Incast) -> None:
    answer = json.loads(real_incast("info", "--json").stdout)
    available = {transport["name"] for transport in answer["transports"] if transport["available"]}
    assert {one_thread(), chosen_across(), simulated()} <= available


def test_a_tree_comes_out_as_it_went_in(real_incast: Incast) -> None:
    n_events = 500
    numbers = np.arange(n_events)
    with uproot.recreate(real_incast.folder / "small.root") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # uproot's writer of TTrees tells that it prefers RNTuples
        file.mktree("tree", {"MET_x": "float32", "MET_y": "float64", "run": "int32"})
        file["tree"].extend({"MET_x": np.sqrt(numbers, dtype="f4"), "MET_y": np.cos(numbers), "run": numbers})
    assert real_incast("import-root", "small.root", "--packing", "20").returncode == 0
    result = result_of(
        real_incast(
            *("run", "--nodes", "2", "--transport", chosen_across()),
            *("--source", "small-mfp", "--sink", "mep:built", "--json"),
        )
    )
    assert (result["events"], result["lost_events"], result["incomplete_events"]) == (n_events, 0, 0)
    check = real_incast("mep", "check", "built")
    assert check.returncode == 0, check.stdout
    compare = real_incast("mep", "compare", "built", "--root", "small.root", "--sources", "small-mfp")
    assert compare.returncode == 0, compare.stdout + compare.stderr
