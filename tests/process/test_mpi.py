"""Event building over MPI, of each launcher that is here; ranks that die, and ranks that stop; what cannot be.

INCAST_KILL_TIMES: how often each kind of node is killed and stopped. INCAST_ALL_COMBINATIONS: every scheme, and the
conformance suite over ranks of each launcher.
"""

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from library_runs import MANY, SCHEMES, build_events
from support import ROOT, Start
from transports import MPI

LAUNCHERS = {"mpirun.openmpi": "mpi-openmpi", "mpiexec.mpich": "mpi-mpich"}
TIMES = int(os.environ.get("INCAST_KILL_TIMES", "1"))
ALL = bool(os.environ.get("INCAST_ALL_COMBINATIONS"))


@pytest.fixture(params=list(LAUNCHERS))
def launcher(request: pytest.FixtureRequest, engine: Path) -> str:
    name: str = request.param
    module = engine.parent.parent / "lib" / "incast" / f"incast-transport-{LAUNCHERS[name]}.so"
    if not module.exists():
        pytest.skip(f"the module {LAUNCHERS[name]} was not built: its library was not there")
    if subprocess.run(["which", name], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"no {name} here")
    return name


def settings_for(launcher: str) -> dict[str, Any]:
    return {
        "transport.name": MPI,
        f"transport.{MPI}.launcher": launcher,
        "run.nodes": 4,
        "protocol.packing": 10,
        "protocol.mfp_size": "32KiB",
        "sink.kind": "verify",
    }


@pytest.mark.parametrize("scheme", SCHEMES if ALL else ["push", "pull-read"])
def test_four_ranks_build_events(start: Start, launcher: str, scheme: str) -> None:
    build_events(start, settings_for(launcher), scheme)


@pytest.mark.skipif(not ALL, reason="takes long: only with INCAST_ALL_COMBINATIONS=1")
def test_ranks_keep_the_contract(engine: Path, launcher: str) -> None:
    words = [launcher, "-n", "4"]
    # Some tests say that a node has ended: its process leaves without MPI_Finalize then.
    if LAUNCHERS[launcher] == "mpi-openmpi":
        words += ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        words += ["--mca", "orte_allowed_exit_without_sync", "1"]
    else:
        words += ["-disable-auto-cleanup"]
    suite = engine.parent.parent / "test-bin" / "conformance"
    with tempfile.TemporaryDirectory() as folder:  # the name of a socket in it must be short
        done = subprocess.run(
            [*words, str(suite), f"--gtest_filter=*{MPI}*", "--gtest_color=no"],
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
            env={**os.environ, "INCAST_CONFORMANCE_RANKS": folder},
            cwd=ROOT,
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"PASSED\s+\] (\d+) tests", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 50


def ranks_of(run_folder: Path) -> dict[int, int]:
    """Process ids by rank."""
    found: dict[int, int] = {}
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            environment = dict(
                each.split(b"=", 1) for each in (process / "environ").read_bytes().split(b"\0") if b"=" in each
            )
        except (OSError, ValueError):
            continue
        rank = environment.get(b"OMPI_COMM_WORLD_RANK", environment.get(b"PMI_RANK"))
        if rank is not None and str(run_folder).encode() in words and words[0].endswith(b"incast-node"):
            found[int(rank)] = int(process.name)
    return found


@pytest.mark.parametrize("attempt", range(TIMES))
@pytest.mark.parametrize("how", [signal.SIGKILL, *([signal.SIGSTOP] if MANY else [])])
def test_a_lost_rank_ends_the_run_with_one_line(start: Start, launcher: str, how: signal.Signals, attempt: int) -> None:
    run = start({**settings_for(launcher), "run.duration": "60s", "run.warm_up": "0s"})
    run.wait_for_phase("measuring")
    ranks = ranks_of(run.output)
    assert sorted(ranks) == [0, 1, 2, 3]
    victim = 1 + attempt % 3
    os.kill(ranks[victim], how)
    assert run.finish(40) != 0, run.story()
    # A process that ends with unread data resets its connections.
    why = "the connection (was closed|broke: Connection reset by peer)" if how == signal.SIGKILL else "silent for"
    lost = [text for text in run.notices if "lost" in text]
    assert len(lost) == 1, run.story()
    # MPICH's UCX can take others along at once (process_vm_readv: no such process): who was first cannot be told then.
    others = "[0-3]" if how == signal.SIGKILL and LAUNCHERS[launcher] == "mpi-mpich" else str(victim)
    ends = "over mpi the run ends with any of its nodes|without the event manager the run ends here"
    assert re.fullmatch(rf"node {others} \((EM\+)?RU\+BU\) lost: {why}.*({ends})", lost[0]), run.story()
    assert ranks_of(run.output) == {}, "nothing is left"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"launcher": "pigeon"}, ["transport.mpi.launcher = 'pigeon'", "no such program"]),
        ({"launcher": "true"}, ["neither Open MPI's nor MPICH's"]),
        ({"chunks": "1"}, ["transport.mpi.chunks"]),
    ],
)
def test_what_cannot_be_is_one_line(engine: Path, tmp_path: Path, settings: dict[str, str], words: list[str]) -> None:
    sets = [word for name, value in settings.items() for word in ("--set", f"transport.{MPI}.{name}={value}")]
    command = [str(engine), "--set", f"transport.name={MPI}", "--set", "run.events=10", *sets]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "out")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_no_launcher_is_one_line(engine: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(engine), "--set", f"transport.name={MPI}", "--output", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "the package openmpi-bin or mpich brings it" in line


def test_ranks_that_are_not_as_many_as_nodes_are_one_line(engine: Path, start: Start) -> None:
    token = "a-word"
    run = start({"transport.name": MPI, "run.nodes": 2}, "--spawn", "0", token=token)
    where = run.wait_for(lambda report: report["type"] == "listening", "listening", 20)["address"]
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}
    environment["INCAST_TOKEN"] = token
    joined = subprocess.run(
        [str(engine), "--join", where, "--by-rank"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment,
    )
    assert joined.returncode != 0
    assert "this is rank 0 of 3, and node 0 of 2" in joined.stderr
    assert run.finish(30) != 0
