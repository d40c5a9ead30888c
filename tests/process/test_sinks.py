"""Commands that take events, and rolling files: what they get is whole, and what happens when they do not take it."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Run, Start, check_accounting, child_pids, mep_check, wait_until
from transports import SOCKETS

sys.path.insert(0, str(ROOT / "python"))
from incast.formats import read_meps

SETTINGS: dict[str, Any] = {
    "transport.name": SOCKETS,
    "run.nodes": 3,
    "run.readout_units": 2,
    "run.builder_units": 1,
    "run.roles": "split",
    "run.warm_up": "50ms",
    "run.duration": "1h",
    "run.sample_interval": "50ms",
    "protocol.packing": 16,
    "source.fragment_size": 256,
    "source.prefill_size": "1MiB",
}
BU = 2


def command(text: str, **more: Any) -> dict[str, Any]:
    settings = {key.replace("__", "."): value for key, value in more.items()}
    return {**SETTINGS, "sink.kind": "command", "sink.command": text, **settings}


def shell_of(run: Run) -> int:
    """The process that runs the command of the builder unit."""
    return child_pids(run.node_pid(BU))[0]


def wait_for_events(run: Run) -> None:
    first = run.wait_for(lambda report: report["type"] == "sample", "sample")
    run.wait_for(lambda report: report["type"] == "sample" and report["events"] > first["events"], "further events")


def interrupt(run: Run) -> int:
    run.process.send_signal(signal.SIGINT)
    return run.finish()


def test_a_command_gets_every_mep_whole(start: Start, tmp_path: Path) -> None:
    run = start(command(f'cat > "{tmp_path}/$INCAST_SINK_NODE.mep"', run__events=20_003, run__duration="auto"))
    assert run.finish() == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert not (tmp_path / "0.mep").exists(), "only builder units have sinks"
    events = 0
    expected = 0
    for _, mep in read_meps(tmp_path / f"{BU}.mep"):
        assert {mfp.first_event for mfp in mep.mfps} == {expected}
        assert len(mep.mfps) == 2
        expected += mep.n_events
        events += mep.n_events
    assert events == result["events"] == 20_003
    assert result["sink"] == {"kind": "command", "undelivered_meps": 0, "committed_means": "in the pipe to the command"}


def test_a_killed_command_ends_the_run_in_one_line(start: Start) -> None:
    run = start(command("cat > /dev/null; true"))
    run.wait_for_phase("measuring")
    wait_for_events(run)
    # The shell with all it started: what is left of them would hold the pipe open and read on.
    os.killpg(shell_of(run), signal.SIGKILL)
    assert run.finish() == 1, run.story()
    lines = [line for line in run.notices if "sink command" in line]
    assert len(lines) == 1, run.notices
    assert "node 2 (BU) cannot go on: sink command: 'cat > /dev/null; true'" in lines[0]
    assert "MEPs" in lines[0]
    assert run.result()["status"] == "failed"


def test_a_command_may_be_gone_if_that_is_configured(start: Start) -> None:
    run = start(command("exec cat > /dev/null", sink__on_failure="continue"))
    run.wait_for_phase("measuring")
    wait_for_events(run)
    os.kill(shell_of(run), signal.SIGKILL)
    run.wait_for(lambda report: report["type"] == "sample", "sample")
    wait_for_events(run)
    assert interrupt(run) == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert result["sink"]["undelivered_meps"] > 0
    assert "was killed by signal 9" in result["nodes"][BU]["note"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("exit 1", "ended with status 1 after 0 MEPs"), ("exec head -c 100 > /dev/null", "ended with status 0 after")],
)
def test_a_command_that_ends_early_fails_the_run(start: Start, text: str, says: str) -> None:
    run = start(command(text))
    assert run.finish() == 1, run.story()
    assert run.result()["status"] == "failed"
    assert says in run.result()["reason"]


def test_a_command_that_fails_at_the_end_fails_the_run(start: Start) -> None:
    run = start(command("cat > /dev/null; exit 3", run__events=5000, run__duration="auto"))
    assert run.finish() == 1, run.story()
    result = run.result()
    assert result["lost_events"] == 0
    assert result["status"] == "failed"
    assert "ended with status 3 after all" in result["reason"]


def test_a_stopped_command_holds_back_triggers_and_nothing_else(start: Start) -> None:
    """The builder is never in write(): its node goes on reporting, and everything goes on when the command does."""
    run = start(
        command(
            "exec cat > /dev/null",
            sink__buffer_size="64KiB",
            source__trigger_rate="20kHz",
            source__policy="throttle",
            source__memory="256KiB",
            protocol__credits=4,
        )
    )
    run.wait_for_phase("measuring")
    wait_for_events(run)
    pid = shell_of(run)
    os.kill(pid, signal.SIGSTOP)
    is_sample = lambda report: report["type"] == "sample"  # noqa: E731
    run.wait_for(
        lambda report: is_sample(report) and report["triggers"]["dead_time_fraction"] > 0.99, "full memory", 60
    )
    held = run.wait_for(is_sample, "sample")
    # On a busy machine, triggers may be counted a sample later.
    later = run.wait_for(
        lambda report: is_sample(report) and report["triggers"]["inhibited_hz"] > 0, "triggers held back", 60
    )
    assert later["events"] == held["events"]
    assert later["triggers"]["accepted_hz"] == 0
    os.kill(pid, signal.SIGCONT)
    run.wait_for(
        lambda report: (
            is_sample(report)
            and report["triggers"]["dead_time_fraction"] == 0
            and report["triggers"]["accepted_hz"] > 10_000
        ),
        "recovery",
        60,
    )
    assert interrupt(run) == 0, run.story()
    check_accounting(run.result())


def files(folder: Path, **more: Any) -> dict[str, Any]:
    settings = {key.replace("__", "."): value for key, value in more.items()}
    return {**SETTINGS, "sink.kind": "mep", "sink.path": str(folder), **settings}


@pytest.mark.parametrize("fsync", ["commit", "interval", "never"])
def test_files_roll_at_their_size(start: Start, tmp_path: Path, fsync: str) -> None:
    folder = tmp_path / "built"
    sizes = {"sink__file_size": "100KiB", "sink__fsync": fsync, "sink__fsync_interval": "20ms"}
    run = start(files(folder, run__events=10_000, run__duration="auto", **sizes))
    assert run.finish() == 0, run.story()
    check_accounting(run.result())
    assert run.result()["sink"]["fsync"] == fsync
    written = sorted(folder.glob("2-1-*.mep"))
    total = sum(file.stat().st_size for file in written)
    assert len(written) >= total // (100 * 1024 + 16 * 1024) > 10
    checked = mep_check(folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("fill", ["generated", "prefilled"])
def test_checksums_of_sources_are_in_the_manifest(start: Start, tmp_path: Path, fill: str) -> None:
    more = {"protocol.checksum": "full", "source.fill": fill, "run.duration": "200ms", "transport.name": SOCKETS}
    run = start(files(tmp_path / "out", **more))
    assert run.finish() == 0, run.story()
    lines = [
        json.loads(line) for path in (tmp_path / "out").glob("manifest-*") for line in path.read_text().split("\n")[:-1]
    ]
    assert lines
    assert all(len(line["mfp_crc32c"]) == line["n_mfps"] for line in lines)
    checked = mep_check(tmp_path / "out")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_files_roll_with_time(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "built"
    run = start(files(folder, sink__file_time="50ms", source__trigger_rate="20kHz"))
    wait_until(lambda: len(list(folder.glob("2-1-*.mep"))) > 4, "files", 60)
    assert interrupt(run) == 0, run.story()
    checked = mep_check(folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("fsync", ["commit", "interval", "never"])
def test_a_killed_writer_leaves_files_that_check(start: Start, tmp_path: Path, fsync: str) -> None:
    """What it committed counts, what it had begun does not, and the other builder unit builds that."""
    folder = tmp_path / "built"
    settings = {
        "run__nodes": 4,
        "run__bus": 2,
        "run__em": "own",
        "sink__file_size": "256KiB",
        "sink__fsync": fsync,
        "source__trigger_rate": "20kHz",
    }
    run = start(files(folder, **settings))
    wait_until(lambda: len(list(folder.glob("2-1-*.mep"))) > 3, "files of the one to be killed", 60)
    os.kill(run.node_pid(BU), signal.SIGKILL)
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    wait_for_events(run)
    assert interrupt(run) == 0, run.story()
    check_accounting(run.result())
    checked = mep_check(folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("em", ["shared", "own"])
def test_counts_agree_where_packets_are_closed_early_and_a_writer_is_killed(
    start: Start, tmp_path: Path, em: str
) -> None:
    """In the result, its summary, the ledger and the files."""
    folder = tmp_path / "built"
    settings = {
        "run__nodes": 4 if em == "own" else 3,
        "run__roles": "folded",
        "run__rus": "auto",
        "run__bus": "auto",
        "run__em": em,
        "run__fail_above_incomplete": 1,
        "protocol__max_wait": "5ms",
        "protocol__packing": 64,
        "source__trigger_rate": "3kHz",
        "sink__fsync": "never",
    }
    run = start(files(folder, **settings))
    wait_until(lambda: (folder / "2-1-0.mep").exists() and (folder / "2-1-0.mep").stat().st_size > 0, "MEPs", 60)
    run.wait_for_phase("measuring")
    wait_for_events(run)
    os.kill(run.node_pid(2), signal.SIGKILL)
    run.wait_for(lambda report: report["type"] == "notice" and "lost" in report["text"], "loss")
    wait_for_events(run)
    assert interrupt(run) == 0, run.story()
    result = run.result()
    check_accounting(result)
    checked = json.loads(mep_check(folder, "--json").stdout)
    assert checked["ok"], checked
    assert checked["events"] == result["events"] == result["complete_events"] + result["incomplete_events"]
    assert checked["incomplete_events"] == result["incomplete_events"] > 0
    assert checked["meps"] == result["accounting"]["meps_committed"]
    assert checked["events"] < 64 * checked["meps"], "most were closed early"
    assert f"{result['events']} events" in run.story()
