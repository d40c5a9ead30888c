"""Who looks at a run may go away: the run does not."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DEADLINE_S, Incast

SMALL = ("--transport", "inproc", "--nodes", "2", "--warm-up", "0s", "--set", "source.prefill_size=256KiB")


def shell(incast: Incast, line: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`incast` in a line for bash that has "$@" in the place of its words."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line, "bash", *incast.command(*arguments)],
        cwd=incast.folder,
        env=incast.full_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def result_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)  # house: allow sleep: polls with a deadline


@pytest.mark.parametrize(
    "line", ['"$@" | head -c 1', '"$@" | true', '"$@" >&-', '"$@" 0<&- 1>&- 2>&-', '"$@" 2>/dev/full', '"$@" 2>&-']
)
def test_what_nobody_reads_is_no_failure(real_incast: Incast, line: str) -> None:
    """Also of a run: its result is written."""
    done = shell(real_incast, line, "run", *SMALL, "--duration", "100ms", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert result_of(real_incast.folder / "out")["status"] == "complete"
    # What is opened first would have got the number of a closed descriptor.
    for name in ("config.toml", "log.txt", "samples.jsonl"):
        assert "goodput, total" not in (real_incast.folder / "out" / name).read_text()


@pytest.mark.parametrize("arguments", [("info",), ("--help",), ("run", "--help"), ("fabric", "list"), ("--version",)])
def test_a_reader_that_has_seen_enough_is_no_failure(real_incast: Incast, arguments: tuple[str, ...]) -> None:
    done = shell(real_incast, '"$@" | true', *arguments)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2), done.stderr


def test_output_on_a_full_disk_is_one_line_and_the_result_is_kept(real_incast: Incast) -> None:
    done = shell(real_incast, '"$@" >/dev/full', "run", *SMALL, "--duration", "50ms", "--output", "out", "--json")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "incast: standard output: No space left on device"
    assert "Traceback" not in done.stderr
    assert result_of(real_incast.folder / "out")["status"] == "complete"


def test_closing_the_terminal_ends_the_run_early_and_it_reports(real_incast: Incast) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(real_incast.folder)
        os.execve(
            real_incast.command()[0],
            real_incast.command("run", *SMALL, "--duration", "1h", "--output", "out"),
            real_incast.full_environment(),
        )
    seen = b""
    deadline = time.monotonic() + DEADLINE_S
    while b"measuring" not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 1 << 16)
    os.close(terminal)
    deadline = time.monotonic() + DEADLINE_S
    ended, status = 0, 0
    while ended == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        assert time.monotonic() < deadline, "the hang-up did not end it"
        ended, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)  # house: allow sleep: polls with a deadline
    assert os.waitstatus_to_exitcode(status) == 0
    assert result_of(real_incast.folder / "out")["status"] == "interrupted"


def test_with_nohup_a_run_goes_on_without_its_terminal(real_incast: Incast) -> None:
    with subprocess.Popen(
        ["nohup", *real_incast.command("run", *SMALL, "--duration", "1h", "--output", "out")],
        cwd=real_incast.folder,
        env=real_incast.full_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        samples = real_incast.folder / "out" / "samples.jsonl"
        wait_for(samples)
        process.send_signal(signal.SIGHUP)
        before = samples.stat().st_size
        deadline = time.monotonic() + DEADLINE_S
        while samples.stat().st_size <= before + 2000:
            assert time.monotonic() < deadline
            assert process.poll() is None, "the hang-up ended it"
            time.sleep(0.02)  # house: allow sleep: polls with a deadline
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
    assert result_of(real_incast.folder / "out")["status"] == "interrupted"


def test_after_kill_9_of_the_command_its_engine_ends_in_order(real_incast: Incast) -> None:
    with subprocess.Popen(
        real_incast.command("run", *SMALL, "--duration", "1h", "--output", "out"),
        cwd=real_incast.folder,
        env=real_incast.full_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_for(real_incast.folder / "out" / "samples.jsonl")
        process.kill()
    wait_for(real_incast.folder / "out" / "result.json")
    result = result_of(real_incast.folder / "out")
    assert (result["status"], result["lost_events"]) == ("interrupted", 0)


def test_a_folder_that_cannot_be_written_is_one_line_of_every_command(real_incast: Incast) -> None:
    (real_incast.folder / "file").write_text("")
    net = ("net", "--transport", "sim", "--nodes", "2", "--pattern", "one-to-one", "--duration", "1ms")
    for arguments in (
        ("run", *SMALL, "--duration", "1ms", "--output", "file/out"),
        ("run", *SMALL, "--duration", "1ms", "--detach", "--output", "file/out"),
        (*net, "--output", "file/out"),
        (*net, "--message-size", "1KiB,2KiB", "--output", "file/out"),
        ("sim", "--sweep", "protocol.credits=1", "--duration", "1ms", "--output", "file/out"),
        ("reproduce", "3", "--output", "file/out"),
    ):
        done = real_incast(*arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        (line,) = done.stderr.splitlines()
        assert "--output file/out" in line, line
        assert line.endswith("allowed: a folder that can be written"), line
