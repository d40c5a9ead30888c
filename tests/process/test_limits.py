"""What the system does not give is said in one line: which limit, its value, what is needed."""

import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from support import must, said_by, wait_until
from transports import ONE_THREAD, SHARED_MEMORY, SOCKETS

COMMON = {"run.warm_up": "0s", "run.duration": "200ms", "transport.name": SOCKETS}


def ran(
    engine: Path, output: Path | bytes, settings: dict[str, object], limit: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[bytes]:
    words: list[str | bytes | Path] = [engine, "--output", output, "--progress", "none"]
    for key, value in (COMMON | settings).items():
        words += ["--set", f"{key}={value}"]
    return subprocess.run(words, capture_output=True, timeout=60, check=False, preexec_fn=limit)


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return done.stderr.decode().splitlines()


def test_too_few_open_files(engine: Path, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    done = ran(engine, tmp_path / "out", {"run.nodes": 24}, limit)
    assert done.returncode == 1
    assert lines(done) == [f"incast-node: the limit of open files (ulimit -n) is 32; 24 nodes over {SOCKETS} need 88"]


def test_a_soft_limit_of_open_files_is_none(engine: Path, tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))

    done = ran(engine, tmp_path / "out", {"run.nodes": 3}, limit)
    assert done.returncode == 0, lines(done)


@pytest.mark.parametrize("transport", [SOCKETS, ONE_THREAD])
@pytest.mark.parametrize("mebibytes", [24, 48, 96, 160])
def test_too_little_address_space(engine: Path, tmp_path: Path, transport: str, mebibytes: int) -> None:
    """Wherever it ends, it ends with a reason."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))

    done = ran(engine, tmp_path / "out", {"run.nodes": 2, "transport.name": transport, "run.em": "own"}, limit)
    said = "\n".join(lines(done))
    assert done.returncode in (0, 1, 2, 3), said
    assert "terminate called" not in said
    assert "bad_alloc" not in said
    if done.returncode != 0:
        assert re.search(r"ulimit -v|failed to map segment", said), said


def test_words_that_are_not_utf8(engine: Path, tmp_path: Path) -> None:
    done = ran(engine, os.fsencode(tmp_path) + b"/r\xfcn", {})
    assert done.returncode == 2
    assert lines(done) == [f"incast-node: '{tmp_path}/r\\xfcn' is not UTF-8; allowed: words and paths in UTF-8"]
    folder = os.fsencode(tmp_path) + b"/d\xfcr"
    Path(os.fsdecode(folder)).mkdir()
    done = subprocess.run([engine, "--output", "out"], cwd=folder, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert lines(done) == [
        f"incast-node: --output out: its path '{tmp_path}/d\\xfcr/out' is not UTF-8; allowed: a path in UTF-8"
    ]


@pytest.fixture
def another_host() -> Iterator[list[str]]:
    """A command that begins one within a network namespace whose loopback is down."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    name = f"incast-six-{uuid4().hex[:8]}"
    if why := said_by("ip", "netns", "add", name):
        pytest.skip(f"this host gives no network namespace: {why}")
    try:
        inside = ["ip", "netns", "exec", name]
        if why := said_by(*inside, "true"):
            pytest.skip(f"nobody can enter a network namespace here: {why}")
        yield inside
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def ran_inside(
    inside: list[str], engine: Path, output: Path, settings: dict[str, object]
) -> subprocess.CompletedProcess[bytes]:
    words = [*inside, str(engine), "--output", str(output), "--progress", "none"]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    return subprocess.run(words, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("transport", [SHARED_MEMORY, SOCKETS])
def test_a_host_without_ipv4(engine: Path, tmp_path: Path, another_host: list[str], transport: str) -> None:
    must(*another_host, "ip", "link", "set", "lo", "up")
    must(*another_host, "ip", "-4", "address", "flush", "dev", "lo")
    if said_by(*another_host, "grep", "-q", "0" * 31 + "1", "/proc/net/if_inet6"):
        pytest.skip("this host has no IPv6")
    settings = {**COMMON, "transport.name": transport, "run.nodes": 2, "run.metrics": "[::1]:0"}
    done = ran_inside(another_host, engine, tmp_path / "out", settings)
    assert done.returncode == 0, lines(done)
    assert '"[::1]:' in (tmp_path / "out" / "metrics.json").read_text()


@pytest.fixture
def stranger(engine: Path) -> Iterator[tuple[list[str], Path]]:
    """A user that has no process: a command that becomes one, and a folder that it may write to, with the engine."""
    if os.geteuid() != 0:
        pytest.skip("another user needs root")
    uid = str(61_000 + os.getpid() % 1000)
    words = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"]
    with tempfile.TemporaryDirectory(prefix="incast-user-", dir="/tmp") as name:
        folder = Path(name)
        shutil.copy(engine, folder / "incast-node")
        folder.chmod(0o777)
        if why := said_by(*words, str(folder / "incast-node"), "--help"):
            pytest.skip(f"another user cannot start the engine here: {why}")
        yield words, folder


@pytest.mark.parametrize(
    ("settings", "processes"),
    [
        ({"transport.name": SOCKETS}, 1),
        ({"transport.name": SOCKETS}, 3),
        ({"transport.name": SHARED_MEMORY, "sink.kind": "mep", "sink.path": "built"}, 5),
        ({"transport.name": ONE_THREAD, "sink.kind": "mep", "sink.path": "built"}, 2),
        ({"transport.name": ONE_THREAD, "sink.kind": "command", "sink.command": "cat > /dev/null"}, 2),
        ({"transport.name": ONE_THREAD, "run.metrics": "127.0.0.1:0"}, 1),
    ],
)
def test_too_few_processes(stranger: tuple[list[str], Path], settings: dict[str, object], processes: int) -> None:
    """Of nodes, of threads of theirs, and of commands."""
    words, folder = stranger
    words = ["prlimit", f"--nproc={processes}:{processes}", *words, str(folder / "incast-node"), "--output", "out"]
    for key, value in ({**COMMON, "run.nodes": 4, "run.join_deadline": "20s"} | settings).items():
        words += ["--set", f"{key}={value}"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.environ["PATH"]}
    )
    said = done.stderr.splitlines()
    assert done.returncode in (1, 2, 3), said
    assert "terminate called" not in done.stderr
    named = [line for line in said if f"(ulimit -u) is {processes}; at least one more is needed" in line]
    assert named, said
    uid = words[words.index("--reuid") + 1]
    wait_until(lambda: said_by("pgrep", "-u", uid) != "", "the end of all its processes")
    assert not list(Path("/dev/shm").glob("*incast*"))
    assert not [file for file in folder.rglob("*") if not (file.is_file() or file.is_dir())]


@pytest.mark.parametrize("transport", [SHARED_MEMORY, SOCKETS])
def test_a_host_whose_loopback_is_down(engine: Path, tmp_path: Path, another_host: list[str], transport: str) -> None:
    done = ran_inside(another_host, engine, tmp_path / "out", {**COMMON, "transport.name": transport, "run.nodes": 2})
    assert done.returncode == 1
    (line,) = lines(done)
    assert re.fullmatch(
        r"incast-node: no way to 127\.0\.0\.1:\d+: Network is unreachable; "
        r"nodes of this host join there: is its interface up\?",
        line,
    ), line
