"""Files of a run on a disk that is full for a while, and folders that belong to another run.

A limit on the size of files, set while the process runs, stands for the full disk.
"""

import json
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Run, Start, check_accounting, wait_until
from transports import ONE_THREAD, SOCKETS

SETTINGS = {
    "run.nodes": 2,
    "run.warm_up": "0s",
    "run.duration": "1h",
    "run.sample_interval": "20ms",
    "transport.name": ONE_THREAD,
    "source.prefill_size": "256KiB",
}


def whole_lines(file: Path) -> list[dict[str, Any]]:
    """Fails on a line that is not one whole JSON object."""
    content = file.read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def allow(run: Run, size: int) -> None:
    """Files of the run may be so long."""
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def end(run: Run) -> int:
    run.process.send_signal(signal.SIGINT)
    return run.finish()


def notice(run: Run, text: str) -> str:
    """The next notice with that text."""
    report = run.wait_for(lambda report: report["type"] == "notice" and text in report["text"], text)
    return str(report["text"])


@pytest.mark.parametrize("task", ["build", "net"])
def test_samples_go_on_when_there_is_room_again_and_the_result_says_what_is_missing(start: Start, task: str) -> None:
    run = start({**SETTINGS, "run.task": task})
    run.wait_for_phase("measuring")
    allow(run, (run.output / "samples.jsonl").stat().st_size + 100)
    said = notice(run, "samples.jsonl' cannot be written")
    assert "File too large; the run goes on, samples are missing until there is room" in said
    allow(run, resource.RLIM_INFINITY)
    notice(run, "samples.jsonl' is written again")
    assert end(run) == 0, run.story()
    samples = whole_lines(run.output / "samples.jsonl")
    result = run.result()
    (listed,) = [file for file in result["incomplete_files"] if file["file"] == "samples.jsonl"]
    assert listed["missing"] > 0
    assert listed["reason"] == "File too large"
    assert samples[-1]["t"] > samples[0]["t"]
    assert len([line for line in run.notices if "samples.jsonl" in line]) == 2, "once each"
    if task == "build":
        check_accounting(result)


def test_a_ledger_that_lacks_records_makes_unknown_what_is_lost(start: Start) -> None:
    run = start({**SETTINGS, "protocol.packing": 1, "source.fragment_size": "64B", "run.sample_interval": "200ms"})
    run.wait_for_phase("measuring")
    allow(run, (run.output / "ledger.bin").stat().st_size)
    said = notice(run, "ledger.bin cannot be written: File too large")
    assert "what is lost will be unknown" in said
    allow(run, resource.RLIM_INFINITY)
    notice(run, "ledger.bin is written again")
    assert end(run) == 1, "nobody can say that nothing is lost"
    result = run.result()
    assert result["lost_events"] is None
    assert result["accounting"]["ledger"]["missing_records"] > 0
    assert result["accounting"]["meps_admitted"] == result["accounting"]["meps_committed"]
    assert [file["file"] for file in result["incomplete_files"]] == ["ledger.bin"]


def files_of_node_1(run: Run) -> int:
    """Bytes of its MEPs."""
    return sum(file.stat().st_size for file in (run.output / "built").glob("1-1-*.mep"))


@pytest.fixture
def built(tmp_path: Path) -> dict[str, Any]:
    """Settings of a run whose sink writes MEPs below its output folder."""
    more = {"transport.name": SOCKETS, "protocol.packing": 4, "sink.kind": "mep", "sink.fsync": "never"}
    return {**SETTINGS, **more, "source.trigger_rate": "20kHz", "sink.path": tmp_path / "run0" / "built"}


def check_built(run: Run) -> dict[str, Any]:
    """What `incast mep check` says of them, in full."""
    words = [sys.executable, "-m", "incast", "mep", "check", "--json", str(run.output / "built")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT / "python")
    checked: dict[str, Any] = json.loads(done.stdout)
    return checked


def test_building_waits_for_room_if_it_is_to(start: Start, built: dict[str, Any]) -> None:
    """For longer than a MEP may be late."""
    run = start({**built, "sink.on_full": "wait", "protocol.late_after": "100ms", "run.drain_deadline": "60s"})
    run.wait_for_phase("measuring")
    wait_until(lambda: files_of_node_1(run) > 0, "MEPs")
    node = run.node_pid(1)
    resource.prlimit(node, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    said = notice(run, "cannot write: File too large")
    assert "node 1" in said
    assert said.endswith("; building waits until there is room, and nothing is lost (sink.on_full = wait)")
    held = files_of_node_1(run)
    for _ in range(50):  # samples of 20 ms
        run.wait_for(lambda report: report["type"] == "sample", "sample")
    assert files_of_node_1(run) == held
    resource.prlimit(node, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    notice(run, "node 1 (RU+BU): sink mep: there is room again, and building goes on after")
    wait_until(lambda: files_of_node_1(run) > held, "further MEPs")
    assert end(run) == 0, run.story()
    check_accounting(run.result())
    checked = check_built(run)
    assert checked["ok"], checked
    assert checked["events"] == run.result()["events"]
    assert len([line for line in run.notices if "sink mep" in line]) == 2, "once each"


@pytest.mark.parametrize("on_full", ["stop", "wait"])
def test_a_disk_that_stays_full_ends_the_run_with_whole_meps_and_their_number(
    start: Start, built: dict[str, Any], on_full: str
) -> None:
    run = start({**built, "sink.on_full": on_full, "run.drain_deadline": "200ms"})
    run.wait_for_phase("measuring")
    for node in (0, 1):
        resource.prlimit(run.node_pid(node), resource.RLIMIT_FSIZE, (16384, resource.RLIM_INFINITY))
    if on_full == "wait":
        notice(run, "cannot write: File too large; building waits")
        assert end(run) == 1, run.story()
    else:
        assert run.finish() == 1, run.story()
    result = run.result()
    assert result["status"] == ("failed" if on_full == "stop" else "not drained")
    said = " ".join(str(node.get("failure")) for node in result["nodes"])
    pattern = r"cannot write: File too large[^;]*; \d+ MEPs with (\d+) events are in its files, each of them whole"
    counts = re.findall(pattern, said)
    assert counts, said
    checked = check_built(run)
    assert all("MEP" in problem and "missing" in problem for problem in checked["problems"]), checked["problems"]
    if len(counts) == 2:
        assert checked["events"] == sum(map(int, counts))
    assert checked["events"] >= result["events"] > 0


def test_the_result_has_its_room_from_the_start(start: Start) -> None:
    run = start(SETTINGS)
    run.wait_for_phase("measuring")
    reserved = (run.output / "result.json.part").stat().st_size
    allow(run, reserved)
    assert end(run) in (0, 1), run.story()
    assert run.result()["status"] == "interrupted"
    assert not (run.output / "result.json.part").exists()


def test_a_disk_that_is_full_at_the_start_is_the_reason(start: Start) -> None:
    settings = {**SETTINGS, "transport.name": SOCKETS, "run.duration": "10ms"}
    run = start(settings, prefix=["bash", "-c", 'ulimit -S -f 4; exec "$@"', "bash"])  # KiB
    assert run.finish() == 1
    assert [line for line in run.notices if "ledger.bin' cannot be extended: File too large" in line], run.notices


def test_a_folder_belongs_to_one_run_at_a_time(start: Start) -> None:
    first = start(SETTINGS)
    first.wait_for_phase("measuring")
    for extra in ((), ("--force",)):
        second = start({**SETTINGS, "run.duration": "10ms"}, *extra, output=first.output)
        assert second.finish() == 2
        assert second.errors == [
            f"incast-node: --output {first.output}: a run is at work there; allowed: another folder"
        ]
    assert end(first) == 0, first.story()
    assert len(first.result()["nodes"]) == 2
    whole_lines(first.output / "samples.jsonl")


def test_an_old_result_stays_unless_it_is_to_be_replaced(start: Start) -> None:
    first = start({**SETTINGS, "run.duration": "10ms"})
    assert first.finish() == 0, first.story()
    before = (first.output / "result.json").read_bytes()
    net = {**SETTINGS, "run.task": "net", "run.duration": "10ms"}
    refused = start(net, output=first.output)
    assert refused.finish() == 2
    (line,) = refused.errors
    assert "holds result.json and other files of another run; allowed: another folder, or --force" in line
    assert (first.output / "result.json").read_bytes() == before
    (first.output / "notes").write_text("mine")
    forced = start(net, "--force", output=first.output)
    assert forced.finish() == 0, forced.story()
    assert forced.result()["kind"] == "net"
    names = sorted(path.name for path in first.output.iterdir())
    assert names == ["audit.jsonl", "config.toml", "log.txt", "notes", "result.json", "samples.jsonl"], (
        "no ledger of the old run"
    )


def test_a_lock_ends_with_its_process(start: Start) -> None:
    first = start(SETTINGS)
    first.wait_for_phase("measuring")
    first.process.kill()
    first.process.wait()
    second = start({**SETTINGS, "run.duration": "10ms"}, "--force", output=first.output)
    assert second.finish() == 0, second.story()


def test_a_run_ends_early_and_in_order_with_the_process_that_watches_it(start: Start) -> None:
    watcher = subprocess.Popen(["sleep", "1000"])
    try:
        run = start({**SETTINGS, "transport.name": SOCKETS}, "--watched-by", str(watcher.pid))
        run.wait_for_phase("measuring")
    finally:
        watcher.kill()
        watcher.wait()
    assert run.finish(30) == 0, run.story()
    assert run.result()["status"] == "interrupted"
    check_accounting(run.result())


def test_a_reader_of_progress_that_is_stopped_holds_up_nothing(engine: Path, tmp_path: Path) -> None:
    """More samples than a pipe holds, and nobody reads."""
    settings = {**SETTINGS, "run.nodes": 16, "run.sample_interval": "10ms", "run.duration": "1s"}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words += ["--output", str(tmp_path / "out")]
    with subprocess.Popen(
        [str(engine), "--progress", "json", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        wait_until((tmp_path / "out" / "result.json").exists, "the result", 150)
        assert process.stdout is not None
        reports = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert process.wait(60) == 0
    assert reports[-1]["type"] == "result"
