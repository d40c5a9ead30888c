"""What the engine writes agrees with what is laid down: reference, schemas, reports."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource
from support import ROOT, Start
from transports import ONE_THREAD, SIMULATED, SOCKETS

QUICK = {
    "transport.name": ONE_THREAD,
    "run.nodes": 2,
    "run.warm_up": "50ms",
    "run.duration": "200ms",
    "run.sample_interval": "50ms",
}


def printed(engine: Path, *arguments: str) -> str:
    return subprocess.run([str(engine), *arguments], capture_output=True, text=True, timeout=20, check=True).stdout


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "schema" / name).read_text())
    return loaded


def validate(instance: Any, name: str) -> None:
    parts = [(part, Resource.from_contents(schema(part))) for part in ("config.schema.json", "network.schema.json")]
    registry: Registry[Any] = Registry().with_resources(parts)
    jsonschema.Draft202012Validator(schema(name), registry=registry).validate(instance)


@pytest.mark.parametrize(
    ("option", "file"),
    [("--print-config-reference", "docs/config.md"), ("--print-config-schema", "schema/config.schema.json")],
)
def test_generated_documents_are_current(engine: Path, option: str, file: str) -> None:
    assert (ROOT / file).read_text() == printed(engine, option), f"write it anew: incast-node {option} > {file}"


def test_results_keep_the_schema(start: Start) -> None:
    settings = [
        QUICK,
        {**QUICK, "transport.name": SOCKETS, "source.trigger_rate": "10kHz"},
        {**QUICK, "transport.name": SIMULATED, "run.duration": "5ms", "run.warm_up": "1ms"},
        {**QUICK, "run.events": 100, "sink.kind": "null"},
        {**QUICK, "sink.kind": "consumer", "sink.policy": "drop", "sink.name": f"documents-{os.getpid()}"},
    ]
    for one in settings:
        run = start(one)
        assert run.finish() == 0, run.story()
        validate(run.result(), "result.schema.json")
    with pytest.raises(jsonschema.ValidationError):
        validate({**run.result(), "unheard_of": 1}, "result.schema.json")


def test_a_run_can_be_repeated_from_its_directory(start: Start) -> None:
    """config.toml holds the configuration in force."""
    first = start(
        {**QUICK, "run.events": 5000, "source.size_distribution": "normal", f"transport.{SIMULATED}.rate": "10GB/s"}
    )
    assert first.finish() == 0, first.story()
    config = first.output / "config.toml"
    validate(tomllib.loads(config.read_text()), "config.schema.json")
    second = start({}, str(config))
    assert second.finish() == 0, second.story()
    assert second.result()["config"] == first.result()["config"]
    assert second.result()["events"] == first.result()["events"] == 5000


def test_samples_add_up(start: Start) -> None:
    run = start(QUICK)
    assert run.finish() == 0, run.story()
    samples = [json.loads(line) for line in (run.output / "samples.jsonl").read_text().splitlines()]
    for node in run.result()["nodes"]:
        own = [sample["delta"] for sample in samples if sample["node"] == node["node"]]
        assert len(own) > 3
        for total in ("events_built", "built_goodput_bytes", "meps_produced"):
            assert sum(delta[total] for delta in own) == node["totals"][total]


def test_progress_reports(start: Start) -> None:
    run = start(QUICK)
    assert run.finish() == 0, run.story()
    phases = [report["phase"] for report in run.reports if report["type"] == "phase"]
    assert phases == ["joining", "warm-up", "measuring", "draining", "done"]
    samples = [report for report in run.reports if report["type"] == "sample"]
    assert len(samples) >= 3
    assert [node["node"] for node in samples[-1]["nodes"]] == [0, 1]
    assert run.reports[-1] == {"type": "result", "path": str(run.output / "result.json")}
    assert run.errors == []


def test_text_for_people(engine: Path, tmp_path: Path) -> None:
    settings = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    text = printed(engine, *settings, "--output", str(tmp_path / "out"))
    assert "measuring" in text
    assert "verified: full, 0 errors" in text
    assert printed(engine, *settings, "--output", str(tmp_path / "out2"), "--progress", "none") == ""


def test_info(engine: Path) -> None:
    info = json.loads(printed(engine, "--info", "json"))
    assert {transport["name"] for transport in info["transports"]} >= {ONE_THREAD, SOCKETS, SIMULATED}
    assert all(transport["available"] or transport["reason"] for transport in info["transports"])
    assert info["machine"]["cores"] >= 1
    assert info["versions"]["incast"] in printed(engine, "--version")
    for transport in info["transports"]:
        assert transport["name"] in printed(engine, "--info")
