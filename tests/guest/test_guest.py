"""The guest itself: what comes back from it, what it has, and that nothing is left behind."""

import contextlib
import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from guest import machine
from guest.steps import Step
from in_guest import GuestRun

RUN = machine.INSIDE.parent / "run"
# Waits for the server: it prints nothing that says when it listens.
SERVE = """
ib_write_bw -d rxe1 -x 1 -s 65536 -n 100 -F >/dev/null &
until ib_write_bw -d rxe2 -x 1 -s 65536 -n 100 -F 10.0.0.1 >/run/client 2>&1; do kill -0 $!; done
wait $!
tail -n 2 /run/client
"""
RPING = """
rping -s -a 10.0.0.3 -C 20 &
until rping -c -v -a 10.0.0.3 -I 10.0.0.4 -C 20 >/run/rping 2>&1; do kill -0 $!; done
grep -c '^ping data' /run/rping
"""


def begin(place: Path, *words: str) -> subprocess.Popen[str]:
    """tools/guest/run with all it leaves in `place`."""
    place.mkdir()
    environment = {**os.environ, "TMPDIR": str(place)}
    pipe = subprocess.PIPE
    return subprocess.Popen([str(RUN), *words], stdout=pipe, stderr=pipe, text=True, env=environment)


def emulators(pid: int) -> list[int]:
    """Running machines among the children of a process."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it ended
            if "qemu" in Path(f"/proc/{child}/exe").readlink().name:
                found.append(int(child))
    return found


@pytest.mark.usefixtures("everything")
def test_what_a_command_says_and_leaves_comes_back_and_four_nodes_talk(guest: GuestRun, tmp_path: Path) -> None:
    """One boot."""
    canary = tmp_path / "canary"
    canary.write_text("as it was")
    results = guest(
        [
            Step("output", "echo hello; echo there >&2; date +%s >/out/clock; exit 7"),
            Step("files", f"cp {canary} /out/copy; echo changed >{canary}; cat {canary}"),
            Step("too long", "echo begun; while :; do read -t 1 <>/dev/ptmx; done", timeout_s=1),
            Step("nodes", "rdma-nodes.sh rxe 4 && rdma link && cat /sys/class/infiniband/rxe?/ports/1/gids/1"),
            Step("rping", "set -e\n" + RPING),
            Step("loss", "netem.sh all -- loss 5% && set -e\n" + SERVE),
            Step("retries", "cat /sys/class/infiniband/rxe[12]/ports/1/hw_counters/{rcvd_seq_err,completer_retry_err}"),
            Step("none", "netem.sh all -- none && tc qdisc"),
        ]
    )
    assert results["output"].status == 7
    assert sorted(results["output"].output.split()) == ["hello", "there"]
    assert results["files"].output == "changed\n", results["files"]
    assert canary.read_text() == "as it was"
    assert next(tmp_path.glob("out*/copy")).read_text() == "as it was"
    assert (results["too long"].status, results["too long"].output) == (124, "begun\n")
    assert abs(int(next(tmp_path.glob("out*/clock")).read_text()) - time.time()) < 600, "the guest keeps time"
    assert results["nodes"].status == 0, results["nodes"]
    assert results["nodes"].output.count("state ACTIVE physical_state LINK_UP") == 4
    assert re.findall(r"ffff:0a00:000(\d)", results["nodes"].output) == ["1", "2", "3", "4"]
    assert results["rping"].status == 0 and results["rping"].output.split()[-1] == "20", results["rping"]
    assert results["loss"].status == 0 and re.search(r"^ 65536 +100 ", results["loss"].output, re.M), results["loss"]
    assert sum(map(int, results["retries"].output.split())) > 0, "what is lost is sent again"
    assert results["none"].status == 0 and "netem" not in results["none"].output, results["none"]


def test_a_command_that_takes_too_long_is_ended(made: Path, tmp_path: Path) -> None:
    process = begin(tmp_path / "place", "--timeout", "0.5", "--", "sleep", "1000")
    said, errors = process.communicate(timeout=60)
    assert (process.returncode, said) == (124, "")
    assert errors == "guest: no end within 0.5 s: ended by force\n"
    assert list((tmp_path / "place").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_interrupts_it_leaves_nothing(made: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = begin(tmp_path / "place", "--peer", "x", "--", "sleep", "1000")
    until = time.monotonic() + 60
    while not (machines := emulators(process.pid)):
        assert process.poll() is None and time.monotonic() < until, "it boots"
    process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    assert (process.returncode, said, errors) == (128 + number, "", "")
    assert not any(Path(f"/proc/{pid}").exists() for pid in machines)
    assert list((tmp_path / "place").iterdir()) == []


def test_a_machine_that_cannot_start_says_why(made: Path, tmp_path: Path) -> None:
    process = begin(tmp_path / "place", "--memory", "1000000000G", "--", "true")
    said, errors = process.communicate(timeout=60)
    assert (process.returncode, said) == (125, "")
    assert errors.startswith("guest: it ended before the command did, and said: ")


def test_a_host_that_cannot_have_it_says_so(tmp_path: Path) -> None:
    """Where it would be made lies a file, and no program is found."""
    (tmp_path / "file").touch()
    environment = {**os.environ, "INCAST_GUEST_CACHE": str(tmp_path / "file")}
    done = subprocess.run([RUN.parent / "setup"], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (77, "")
    assert re.fullmatch(r"skipped: .+\n", done.stderr)


@pytest.mark.usefixtures("everything")
def test_two_guests_reach_each_other(guest: GuestRun, tmp_path: Path) -> None:
    serve = "ib_write_bw -d rxe1 -x 1 -s 65536 -n 100 -F"
    ask = f"until {serve} 10.0.1.1 >/run/client 2>&1; do :; done; tail -n 2 /run/client"
    wanted = [
        Step("join", "rdma-pair.sh rxe", timeout_s=120),
        Step("ping", "ping -c 3 10.0.1.$((3 - INCAST_GUEST_SIDE))"),
        Step("bandwidth", f"if [ $INCAST_GUEST_SIDE = 1 ]; then {serve}; else {ask}; fi"),
    ]
    peer = f"{os.getpid()}-{tmp_path.name}"[:32]
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: guest(wanted, peer=peer, cpus=1), range(2)))
    assert sorted(results["join"].output for results in both) == ["1\n", "2\n"], both
    for results in both:
        assert "3 received, 0% packet loss" in results["ping"].output, results["ping"]
        assert results["bandwidth"].status == 0, results["bandwidth"]
        assert re.search(r"^ 65536 +100 ", results["bandwidth"].output, re.M), results["bandwidth"]


@pytest.mark.usefixtures("everything", "with_siw")
def test_iwarp_is_a_second_kind_of_device(guest: GuestRun) -> None:
    results = guest([Step("nodes", "rdma-nodes.sh siw 4 && rdma link"), Step("rping", "set -e\n" + RPING)])
    assert results["nodes"].output.count("state ACTIVE") == 4, results["nodes"]
    assert results["rping"].output.split()[-1] == "20", results["rping"]
