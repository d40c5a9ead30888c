"""ROOT over channels (docs/root.md): its own programs, unchanged, and the sockets that have addresses of channels.

Runs where `bridges/root/build.sh build/root` has made the library, or what INCAST_ROOT_BRIDGE names.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support import ROOT, process_state, said_by, wait_until

BRIDGE = Path(os.environ.get("INCAST_ROOT_BRIDGE", ROOT / "build" / "root"))
NETWORK = ["unshare", "--map-root-user", "--net"]
MACROS = ROOT / "bridges/root/tests"
TIMES = int(os.environ.get("INCAST_ROOT_TIMES", "1"))
PATIENCE = 180
SHM = {"INCAST_ROOT": "shm"}
RIO = {"INCAST_ROOT": "rio", "RIO_FABRIC": f"shm:root-test-{os.getpid()}"}

pytestmark = [
    pytest.mark.skipif(
        not (BRIDGE / "lib" / "libIncastRoot.so").exists(), reason="bridges/root/build.sh build/root was not run"
    ),
    pytest.mark.skipif(said_by(*NETWORK, "true") != "", reason="no network namespaces here"),
]


def test_tutorials_give_what_they_give_over_sockets() -> None:
    program = ROOT / "bridges/root/tutorials/run.py"
    words = [sys.executable, str(program), str(BRIDGE), "--only", "hserv", "--over", "shm", "--timeout", "60"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hserv over shm: equal" in done.stdout


def test_the_first_program_of_the_document_runs(tmp_path: Path) -> None:
    """docs/root.md: its lines, as they stand there, in a network of its own, as they name a port."""
    document = (ROOT / "docs/root.md").read_text()
    example = re.search(r"```\n(export LD_PRELOAD=.*?)```", document, re.S)
    assert example is not None
    preload, serve, ask = example[1].replace("build/root/", f"{BRIDGE}/").replace("$PWD/", "").splitlines()
    assert serve.endswith(" &")
    script = f"""
        ip link set lo up || exit 1
        {preload}
        {serve[:-2]} > {tmp_path}/served.txt 2>&1 &
        tail -f --pid $! {tmp_path}/served.txt 2>/dev/null | grep -q -m 1 listens
        {ask}
        wait
    """
    words = [*NETWORK, "sh", "-c", script]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert "hpx has 10000 entries" in done.stdout
    assert "a socket is tried" not in done.stderr + (tmp_path / "served.txt").read_text()


def test_the_lines_of_python_in_the_document_run(tmp_path: Path) -> None:
    python = BRIDGE / "venv" / "bin" / "python"
    if not python.exists():
        pytest.skip("build.sh built against another ROOT than the package of Python")
    example = re.search(r"```python\n(.*?)```", (ROOT / "docs/root.md").read_text(), re.S)
    assert example is not None
    (tmp_path / "example.py").write_text(example[1].replace("build/root/", f"{BRIDGE}/"))
    words = [str(python), "-W", "ignore", str(tmp_path / "example.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.stdout == "hello\n", done.stderr


@contextmanager
def program(macro: str, *arguments: object, turned: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A macro of bridges/root/tests in a process of ROOT.

    Its standard input is a pipe that says nothing: ROOT watches it, and one that has ended is readable for ever.
    """
    said = ", ".join(f'"{each}"' if isinstance(each, str) else str(each) for each in arguments)
    words = [str(BRIDGE / "bin/root.exe"), "-l", "-b", "-q", f"{MACROS / macro}({said})"]
    environment = os.environ | turned
    environment["LD_PRELOAD"] = str(BRIDGE / "lib/libIncastRootPreload.so")
    environment["ROOT_INCLUDE_PATH"] = str(BRIDGE / "include")
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as made:
        alarm = threading.Timer(PATIENCE * TIMES, made.kill)
        alarm.start()
        try:
            yield made
        finally:
            alarm.cancel()
            made.kill()


def line_of(process: subprocess.Popen[str], beginning: str) -> str:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith(beginning):
            return line.strip()
    raise AssertionError(f"nothing begins with '{beginning}' in:\n{''.join(seen)}")


def test_a_monitor_has_sockets_of_mixed_kinds() -> None:
    with program("monitor.C", "serve", 64, turned=RIO | SHM) as server:
        _, port, rio = line_of(server, "at ").split()
        with program("monitor.C", "fill", 64, int(port), rio, turned=RIO | SHM) as client:
            assert [line_of(server, str(count)) for count in (21, 22, 21)] == ["21 by rio", "22 by shm", "21 by tcp"]
            idle = line_of(server, "idle: ")
            assert idle.startswith("idle: slept")
            assert line_of(server, "came: ") == "came: 3200 of 3200, 0 wrong, 0 empty wake-ups", idle
            assert line_of(client, "sent ") == "sent 3200"


CM = RIO | {"INCAST_ROOT": "cm"}
WAYS = {"shm": (SHM, "shm://*"), "rio": (RIO, "rio://*:*"), "cm": (CM, "cm://*:*")}
# What the other side sees: the code of Recv(), and whether the socket is marked as broken.
ENDS = {"good": "code 0, broken 1", "torn": "code -5, broken 1", "killed": "code -5, broken 1"}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_peer_that_ends_is_seen_by_the_codes_of_root(way: str) -> None:
    turned, place = WAYS[way]
    with program("peer.C", "watch", place, 3 * TIMES + 1, turned=turned) as server:
        address = line_of(server, "at ").split()[1]
        for _ in range(TIMES):
            for what in ("good", "torn"):
                with program("peer.C", what, address, 20, turned=turned):
                    assert line_of(server, "three came").endswith(f"by {way}")
                    assert line_of(server, "ended: ").startswith(f"ended: {ENDS[what]}, valid 0, after -1, messages 20")
            with program("peer.C", "endless", address, 0, turned=turned) as killed:
                line_of(server, "three came")
                killed.kill()
                assert line_of(server, "ended: ").startswith(f"ended: {ENDS['killed']}, valid 0, after -1")
        with program("peer.C", "good", address, 5, turned=turned):
            assert line_of(server, "ended: ").endswith("messages 5")


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_stopped_peer_is_waited_for(way: str) -> None:
    turned, place = WAYS[way]
    with program("peer.C", "watch", place, 2 * TIMES, turned=turned) as server:
        address = line_of(server, "at ").split()[1]
        for _ in range(TIMES):
            with program("peer.C", "good", address, 200, turned=turned) as peer:
                line_of(server, "three came")
                os.kill(peer.pid, signal.SIGSTOP)
                wait_until(lambda pid=peer.pid: process_state(pid) == "T", "stopped")
                os.kill(peer.pid, signal.SIGCONT)
                assert line_of(server, "ended: ") == "ended: code 0, broken 1, valid 0, after -1, messages 200"
            with program("peer.C", "endless", address, 0, turned=turned) as peer:
                line_of(server, "three came")
                os.kill(peer.pid, signal.SIGSTOP)
                wait_until(lambda pid=peer.pid: process_state(pid) == "T", "stopped")
                peer.kill()
                assert line_of(server, "ended: ").startswith("ended: code -5, broken 1, valid 0, after -1")


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_server_that_is_killed_ends_its_client(way: str) -> None:
    turned, place = WAYS[way]
    for _ in range(TIMES):
        with program("peer.C", "watch", place, 1, turned=turned) as server:
            address = line_of(server, "at ").split()[1]
            with program("peer.C", "endless", address, 0, turned=turned) as client:
                line_of(server, "three came")
                server.kill()
                assert line_of(client, "sent: ") == "sent: code 0, broken 1, valid 0"


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_client_without_channels_arrives_by_tcp(way: str) -> None:
    turned, _ = WAYS[way]
    with program("peer.C", "watch", "0", 2, turned=turned) as server:
        port = line_of(server, "at ").split()[1]
        with program("peer.C", "good", port, 7, turned={"INCAST_ROOT": "tcp"}):
            assert line_of(server, "three came") == "three came by tcp"
            assert line_of(server, "ended: ").endswith("messages 7")
        with program("peer.C", "good", port, 7, turned=turned):
            assert line_of(server, "three came") == f"three came by {way}"
            assert line_of(server, "ended: ").endswith("messages 7")


def test_a_server_that_is_not_turned_knows_its_own_port() -> None:
    with program("peer.C", "watch", "0", 1, turned={"INCAST_ROOT": "tcp"}) as server:
        port = line_of(server, "at ").split()[1]
        with program("peer.C", "good", port, 3, turned=SHM):
            assert line_of(server, "ended: ").endswith("messages 3")


def test_a_listener_that_speaks_something_else_gives_no_socket(tmp_path: Path) -> None:
    """So does one of another version: its card is not understood."""
    path = str(tmp_path / "other")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen()
        other.settimeout(PATIENCE)
        with program("peer.C", "good", f"shm://{path}", 1, turned=SHM) as client:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n" * 20)
            assert line_of(client, "valid ") == "valid 0"


def channel_library() -> Path:
    """The one that the bridge is linked with."""
    words = ["ldd", str(BRIDGE / "lib/libIncastRoot.so")]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r"libincast-channel\.so\S* => (\S+)", said)
    assert found is not None, said
    return Path(found[1])


@pytest.mark.parametrize("newer", ["server", "client"])
@pytest.mark.parametrize("way", ["shm", "rio"])
def test_libraries_of_two_versions_say_so(way: str, newer: str, tmp_path: Path) -> None:
    """Version 1 is in each card that it gives; in this copy that is 2."""
    turned, place = WAYS[way]
    library = channel_library()
    code = library.read_bytes()
    assert code.count(b"CHC2") > 0
    (tmp_path / library.name).write_bytes(code.replace(b"CHC2", b"CHC9"))
    other = turned | {"LD_LIBRARY_PATH": str(tmp_path)}
    by_newer = {"server": other, "client": turned} if newer == "server" else {"server": turned, "client": other}
    with program("peer.C", "watch", place, 1, turned=by_newer["server"]) as server:
        address = line_of(server, "at ").split()[1]
        with program("peer.C", "good", address, 5, turned=by_newer["client"]) as client:
            why = line_of(client, "Error in <TRioSystem::OpenConnection>")
            there = "9" if newer == "server" else "2"
            assert f"the library there speaks version {there} of ring channels, this one version " in why
            assert line_of(client, "valid ") == "valid 0"
        with program("peer.C", "good", address, 5, turned=by_newer["server"]):
            assert line_of(server, "ended: ").endswith("messages 5")


def test_the_experiments_of_the_document_run(tmp_path: Path) -> None:
    """Its lines, for a moment each: two clients, small buffers. Every version of the papers is in it."""
    example = re.search(r"```\n(incast bridge root.*?)```", (ROOT / "docs/root.md").read_text(), re.S)
    assert example is not None
    for number, line in enumerate(example[1].splitlines()):
        words = line.replace("--write-docs docs/root.md", "").split()[1:]
        words += ["--seconds", "0.05", "--rounds", "1", "--clients", "2", "--buffer-size", "64KiB"]
        words += ["--bridge", str(BRIDGE), "--output", str(tmp_path / str(number))]
        command = [sys.executable, "-m", "incast", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads((tmp_path / str(number) / "result.json").read_text())
        assert result["unfinished"] == [] and all(min(case["bytes_per_s"]) > 0 for case in result["cases"])
    assert {case["version"] for case in result["cases"]} == {"cm", "cm-ack", "polled", "doorbell"}


def equal(first: Path, second: Path) -> str:
    """What bridges/root/tutorials/equal.C says of two files that have to be equal."""
    macro = f'{ROOT / "bridges/root/tutorials/equal.C"}("{first}", "{second}")'
    words = [str(BRIDGE / "bin/root.exe"), "-l", "-b", "-q", macro]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("way", sorted(WAYS))
def test_histograms_of_eight_processes_are_those_of_one(way: str, tmp_path: Path) -> None:
    turned, _ = WAYS[way]
    merged, alone = tmp_path / "merged.root", tmp_path / "alone.root"
    with program("workload.C", "merge", 8, str(merged), turned=turned) as server, ExitStack() as stack:
        port = int(line_of(server, "at ").split()[1])
        for number in range(8):
            stack.enter_context(program("workload.C", "fill", port, number, turned=turned))
        assert line_of(server, "merged ") == f"merged 8 by {way}"
        assert server.wait(PATIENCE) == 0
    with program("workload.C", "alone", 8, str(alone), turned=turned) as one:
        assert one.wait(PATIENCE) == 0
    assert "mass: 202 bins are equal" in equal(merged, alone)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_skim_in_two_processes_is_that_of_one_and_that_over_tcp(way: str, tmp_path: Path) -> None:
    data = ROOT.parent / "shared/data/nanoAOD_2015_CMS_Open_Data_ttbar.root"
    if not data.exists():
        pytest.skip(f"{data.name} is not beside the checkout")
    turns = {"tcp": {"INCAST_ROOT": "tcp"}, way: WAYS[way][0]}
    for name, turned in turns.items():
        with program("workload.C", "gather", str(tmp_path / f"{name}.root"), turned=turned) as server:
            port = int(line_of(server, "at ").split()[1])
            with program("workload.C", "skim", port, str(data), turned=turned):
                assert re.fullmatch(f"gathered [0-9]+ of 4 parts by {name}", line_of(server, "gathered "))
                assert server.wait(PATIENCE) == 0
    alone = tmp_path / "alone.root"
    with program("workload.C", "skim-alone", str(alone), str(data), turned={"INCAST_ROOT": "tcp"}) as one:
        assert one.wait(PATIENCE) == 0
    for name in turns:
        assert "entries are equal" in equal(tmp_path / f"{name}.root", alone)
    assert "entries are equal" in equal(tmp_path / f"{way}.root", tmp_path / "tcp.root")
