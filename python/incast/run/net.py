"""Raw traffic: one measurement, or one for each of a list, and what event building made of it (docs/net.md)."""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from incast.base.console import open_console
from incast.base.errors import OneLineError
from incast.base.files import FILES_OF_A_RUN, leave_file, remove_files, writing_output
from incast.engine.at_work import engines_writing_to
from incast.engine.process import Outcome
from incast.engine.settings import present_config
from incast.evidence.result import Result
from incast.run.execution import check, conclude, read_result, show_result, watch
from incast.run.net_cases import Cases, idle_case
from incast.run.net_summary import print_net_loaded, print_net_sizes
from incast.run.request import RunRequest

_EXIT_BAD_CONFIG = 2
_SIZE_FOLDER = re.compile(r"\d\d+-[\w.-]+")
RESULT_NAME = "result.json"


def like_options(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Settings for the traffic matrix and message size of a run of event building, and that run's result."""
    file = path / "result.json" if path.is_dir() else path
    try:
        built = json.loads(file.read_text())
        config = built["config"] = present_config(built["config"])
        sizes = built["sizes"]
        name = config["transport"]["name"]
        options = {"transport.name": name, "net.message_size": str(sizes["mfp_bytes"])}
        if config["run"]["roles"] == "split":
            producers, consumers = str(config["run"]["readout_units"]), str(config["run"]["builder_units"])
            options |= {"net.pattern": "bipartite", "net.producers": producers, "net.consumers": consumers}
            options["run.nodes"] = str(config["run"]["nodes"])
        else:
            options |= {"net.pattern": "all-to-all", "run.nodes": str(config["run"]["nodes"])}
        given = config["transport"].get(name, {})
        options |= {f"transport.{name}.{key}": str(value) for key, value in given.items()}
        float(built["goodput_bytes_per_s"]["total_without_self"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OneLineError(
            f"--like {path}: no result of `incast run` ({error}); allowed: its directory", _EXIT_BAD_CONFIG
        ) from error
    return options, built


def with_efficiency(result: dict[str, Any], built: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """EB-M5: goodput over raw goodput, where transport, matrix and message size are those of the run."""
    config = built["config"]
    nodes, split = config["run"]["nodes"], config["run"]["roles"] == "split"
    first_builder = int(config["run"]["readout_units"]) if split else 0
    pairs = {(pair["from"], pair["to"]) for pair in result["pairs"]}
    wanted = {
        (sender, receiver)
        for sender in range(first_builder if split else nodes)
        for receiver in range(first_builder, nodes)
        if sender != receiver
    }
    same = (
        pairs == wanted
        and (result["measure"], result["operation"], result["buffers"]) == ("bandwidth", "write", "cycled")
        and result["message_bytes"] == built["sizes"]["mfp_bytes"]
        and (result["transport"], result["time_domain"]) == (config["transport"]["name"], built["time_domain"])
    )
    raw, goodput = result["bytes_per_s"]["total"], built["goodput_bytes_per_s"]["total_without_self"]
    if not same or raw <= 0:
        return result
    efficiency: dict[str, Any] = {"result": str(path), "goodput_bytes_per_s": goodput, "fraction": goodput / raw}
    if goodput > raw:
        # Event building cannot do more than its interconnect: one of the two is not what it says.
        efficiency |= {
            "fraction": None,
            "reason": "the run moved more than raw traffic did: one of them was too short, or others used the machine",
        }
    return result | {"efficiency": efficiency}


Table = Callable[[Sequence[Result]], str]


def measure(
    request: RunRequest,
    cases: Cases,
    like: tuple[Mapping[str, Any], Path] | None,
    *,
    as_json: bool,
    table: Table | None = None,
) -> int:
    """One measurement, or one after the other; the exit status is the worst one. `table`: makes the text of all results
    that stands on standard output instead of their summary.
    """
    if cases.alone:
        return _Measuring(like).alone(request, as_json=as_json, table=table)
    for number, case in enumerate(cases.cases):
        check(case.request(request, number))  # all of them before the first, which may take long
    request = request.with_folder()
    clear(request, _SIZE_FOLDER)
    measuring = _Measuring(like)
    results: list[dict[str, Any]] = []
    for number, case in enumerate(cases.cases):
        result = measuring.one(case.request(request, number), case.name)
        results += [result] if result else []
        if result is None or result["status"] != "complete":
            break
    if results and cases.against_idle:
        whole = len(results) == len(cases.cases) and results[-1]["status"] == "complete"
        case = idle_case(results[0]["ping_bytes"])
        idle = measuring.one(case.request(request, len(cases.cases)), case.name) if whole else None
        whole_result = {"schema": 1, "kind": "net-loaded", "idle": idle, "results": results}
        _show(whole_result, request.output, as_json, table)
    elif results:
        _show({"schema": 1, "kind": "net-sizes", "results": results}, request.output, as_json, table)
    return measuring.status


class _Measuring:
    """Runs of the engine, one after the other, and the worst of their exit statuses."""

    def __init__(self, like: tuple[Mapping[str, Any], Path] | None) -> None:
        self.status = 0
        self._like = like

    def alone(self, request: RunRequest, *, as_json: bool, table: Table | None) -> int:
        """One that is shown by itself."""
        outcome, result = self._watched(request, f"incast net  {request.transport}")
        if outcome.result_path is not None and result is not None:
            if table is None:
                show_result(outcome, result, outcome.result_path, as_json=as_json)
            else:
                conclude(outcome, result, outcome.result_path)
                sys.stdout.write(table([result]))
        return self.status

    def one(self, request: RunRequest, name: str) -> dict[str, Any] | None:
        """One of several; nothing if the engine left no result."""
        outcome, result = self._watched(request, f"incast net  {request.transport}  {name}")
        if outcome.result_path is not None and result is not None:
            conclude(outcome, result, outcome.result_path)
        return result

    def _watched(self, request: RunRequest, title: str) -> tuple[Outcome, dict[str, Any] | None]:
        outcome = watch(request, title, unit="messages")
        self.status = max(self.status, outcome.exit_status)
        if outcome.result_path is None:
            return outcome, None
        result = read_result(outcome, outcome.result_path)
        if self._like is not None:
            result = with_efficiency(result, *self._like)
            leave_file(outcome.result_path, json.dumps(result, indent=2) + "\n")
        return outcome, result


def clear(request: RunRequest, folders: re.Pattern[str]) -> None:
    """The folder of several measurements: an earlier one's results are refused, or removed if that was asked for."""
    old = request.output / RESULT_NAME
    if old.exists() and not request.force:
        raise OneLineError(
            f"--output {request.output}: holds {RESULT_NAME} of an earlier run; allowed: another folder, or --force, "
            "which removes that run's files",
            _EXIT_BAD_CONFIG,
        )
    if request.force and request.output.is_dir():
        with writing_output(request.output):
            for folder in request.output.iterdir():
                if folders.fullmatch(folder.name) and folder.is_dir() and not engines_writing_to(folder):
                    remove_files(folder, FILES_OF_A_RUN)
            remove_files(request.output, FILES_OF_A_RUN)


def _show(whole: dict[str, Any], output: Path, as_json: bool, table: Table | None) -> None:
    text = json.dumps(whole, indent=2) + "\n"
    leave_file(output / RESULT_NAME, text)
    if table is not None:
        idle = whole.get("idle")
        sys.stdout.write(table([*([] if idle is None else [idle]), *whole["results"]]))
    elif as_json:
        sys.stdout.write(text)
    elif whole["kind"] == "net-loaded":
        print_net_loaded(open_console(), whole["idle"], whole["results"], output)
    else:
        print_net_sizes(open_console(), whole["results"], output)
