"""ZeroMQ over channels (docs/zeromq.md): a program that knows nothing of Incast, in two processes.

Runs where `bridges/zmq/build.sh build/zmq` has made a libzmq, or what INCAST_ZMQ names.
"""

import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from incast.bridges.zmq_program import LATENCY, STREAM, WAYS, Case, Measuring, Ring
from support import ROOT

BRIDGE = Path(os.environ.get("INCAST_ZMQ", ROOT / "build" / "zmq"))

# What bridges/zmq/tests/users.c does so often, and says then.
USERS = {
    "sizes": (20000, "20000 messages, 20055315 bytes, all equal"),
    "fan": (50, "100 subscribers, 50 messages each, all in order"),
    "route": (10, "64 peers in 32 processes, 10 answers each"),
    "proxy": (100, "4 that ask, a proxy, 4 that answer, 100 answers each"),
    "curve": (20, "the right key is answered, the wrong one is not"),
    "garbage": (40, "who speaks no ZMTP harms nobody"),
}
numbers = itertools.count()

pytestmark = pytest.mark.skipif(
    not (BRIDGE / "lib" / "libzmq.so.5").exists(), reason="bridges/zmq/build.sh build/zmq was not run"
)


def build(source: str, program: Path) -> Path:
    folders = [f"-I{BRIDGE / 'include'}", f"-L{BRIDGE / 'lib'}", f"-Wl,-rpath,{BRIDGE / 'lib'}"]
    command = ["cc", "-O2", str(ROOT / "bridges" / "zmq" / source), "-o", str(program), *folders, "-lzmq", "-lpthread"]
    subprocess.run(command, check=True, timeout=60)
    return program


@pytest.fixture(scope="module")
def hello(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("hello.c", tmp_path_factory.mktemp("zmq") / "hello")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("tests/users.c", tmp_path_factory.mktemp("zmq") / "users")


@contextmanager
def server(hello: Path, address: str, **settings: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = {**os.environ, **settings}
    process = subprocess.Popen([str(hello), "serve", address], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def run(hello: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **settings}
    command = [str(hello), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)


@pytest.fixture
def fabric() -> str:
    return f"shm:zeromq-{os.getpid()}-{next(numbers)}"


@pytest.mark.parametrize("address", ["shm://*", "shm://hello-PID", "tcp://127.0.0.1:*"])
def test_questions_are_answered(hello: Path, address: str) -> None:
    address = address.replace("PID", str(os.getpid()))
    with server(hello, address) as (process, bound):
        assert bound.startswith(address.rstrip("*"))
        asked = run(hello, "ask", bound, "200")
        assert (asked.stdout, asked.stderr) == ("200 answers, all equal\n", "")
        assert process.wait(timeout=20) == 0


def test_names_of_shm_in_the_form_of_addresses_of_tcp(hello: Path) -> None:
    host = f"numbered-{os.getpid()}"
    with server(hello, f"shm://{host}:*") as (first, one), server(hello, f"shm://{host}:0") as (second, other):
        numbers = [int(address.removeprefix(f"shm://{host}:")) for address in (one, other)]
        assert len({*numbers}) == 2
        assert all(49152 <= number <= 65535 for number in numbers)
        for process, address in [(second, other), (first, one)]:
            assert run(hello, "ask", address, "3").stdout == "3 answers, all equal\n"
            assert process.wait(timeout=20) == 0
    with server(hello, "shm://*:*") as (process, bound):
        assert bound.startswith("shm://localhost:")
        assert run(hello, "serve", bound.replace("localhost", "*")).stderr.endswith("Address already in use\n")
        assert run(hello, "ask", bound, "3").returncode == 0


def test_bad_addresses_are_refused_as_over_tcp(hello: Path) -> None:
    for command, address, why in [
        ("serve", "shm://", "Invalid argument"),
        ("ask", "shm://*", "Invalid argument"),
        ("ask", "shm://name:*", "Invalid argument"),
        ("ask", "shm://name:0", "Invalid argument"),
        ("ask", "shm://*:5555", "Invalid argument"),
        ("ask", "rio://1", "Invalid argument"),
        ("ask", "rio://1:70000", "Invalid argument"),
        ("ask", "verbs://*:5", "Invalid argument"),
        ("serve", "shm://" + "x" * 91, "File name too long"),
        ("serve", "nothing://x", "Protocol not supported"),
    ]:
        refused = run(hello, command, address)
        assert refused.returncode == 1
        assert refused.stderr == f"hello: {address}: {why}\n"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("INCAST_ZMQ_BUFFERS", "-1"),
        ("INCAST_ZMQ_BUFFERS", "70000"),
        ("INCAST_ZMQ_BUFFERS", "many"),
        ("INCAST_ZMQ_BUFFER_BYTES", "10"),
        ("INCAST_ZMQ_BUFFER_BYTES", "100000000"),
        ("INCAST_ZMQ_BATCH", "70000"),
    ],
)
def test_rings_that_cannot_be_are_refused(hello: Path, setting: str, value: str) -> None:
    for command in ("serve", "ask"):
        refused = run(hello, command, "shm://ring", **{setting: value})
        assert (refused.returncode, refused.stderr) == (1, "hello: shm://ring: Invalid argument\n")


def test_rings_of_none_and_one(hello: Path) -> None:
    """0 buffers: automatic."""
    for buffers in ("0", "1"):
        with server(hello, "shm://*") as (_, bound):
            assert run(hello, "ask", bound, "20", INCAST_ZMQ_BUFFERS=buffers).stdout == "20 answers, all equal\n"


def test_errors_of_rio(hello: Path, fabric: str) -> None:
    one = {"RIO_FABRIC": fabric, "RIO_DESTID": "1"}
    with server(hello, "rio://1:77", **one) as (process, bound):
        assert bound == "rio://1:77"
        # The destination id is taken by then, so that of the second process is another one.
        for address, why in [
            ("rio://1:77", "Cannot assign requested address"),
            ("rio://9:77", "Cannot assign requested address"),
            ("rio://:77", "Invalid argument"),
        ]:
            assert run(hello, "serve", address, RIO_FABRIC=fabric).stderr == f"hello: {address}: {why}\n"
        wrong = run(hello, "serve", "rio://1:5", RIO_FABRIC="nonsense:")
        assert wrong.stderr.endswith("hello: rio://1:5: No such device\n")
        assert run(hello, "ask", bound, "3", RIO_FABRIC=fabric).stdout == "3 answers, all equal\n"
        assert process.wait(timeout=20) == 0


def test_who_connects_to_nobody_waits_until_somebody_listens(hello: Path) -> None:
    address = f"shm://later-{os.getpid()}"
    command = [str(hello), "ask", address, "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asker, server(hello, address):
        assert asker.communicate(timeout=60)[0] == "3 answers, all equal\n"


@pytest.mark.parametrize("address", ["shm://*", "rio://1:*"])
@pytest.mark.parametrize("what", USERS)
def test_what_users_do(users: Path, fabric: str, address: str, what: str) -> None:
    count, said = USERS[what]
    done = run(users, what, address, str(count), RIO_FABRIC=fabric)
    assert (done.stdout, done.stderr, done.returncode) == (said + "\n", "", 0)


def test_a_name_belongs_to_one_until_it_ends(hello: Path) -> None:
    name = f"shm://one-{os.getpid()}"
    with server(hello, name) as (process, _):
        assert run(hello, "serve", name).stderr == f"hello: {name}: Address already in use\n"
        process.kill()
        process.wait(timeout=20)
        with server(hello, name) as (_, bound):
            assert bound == name
            assert run(hello, "ask", bound, "1").returncode == 0


@pytest.mark.parametrize("address", ["shm://*", "rio://*:*"])
def test_what_has_no_room_when_a_socket_is_closed_arrives(address: str, tmp_path: Path) -> None:
    program = tmp_path / "zmq_last_batch"
    source = ROOT / "tests/process/zmq_last_batch.c"
    folders = [f"-I{BRIDGE / 'include'}", f"-L{BRIDGE / 'lib'}", f"-Wl,-rpath,{BRIDGE / 'lib'}"]
    subprocess.run(["cc", str(source), "-o", str(program), *folders, "-lzmq"], check=True, timeout=60)
    small = {"INCAST_ZMQ_BUFFERS": "4", "INCAST_ZMQ_BUFFER_BYTES": "4096", "RIO_FABRIC": f"shm:last-{os.getpid()}"}
    done = subprocess.run(
        [str(program), address], env=os.environ | small, check=False, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_program_of_the_document_runs(tmp_path: Path) -> None:
    """docs/zeromq.md, from nothing to a program of one's own: its commands as they stand there, in an empty folder.

    Those that build the bridge were run before: `.ci/run --all` begins with an empty folder, too.
    """
    text = (ROOT / "docs/zeromq.md").read_text()
    section = text.partition("## From nothing to a program of your own")[2].partition("\n## ")[0]
    builds, source, commands = re.findall(r"```c?\n(.*?)```", section, re.DOTALL)
    assert builds.splitlines()[-1] == "bridges/zmq/build.sh build/zmq"
    (tmp_path / "post.c").write_text(source)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/zmq").symlink_to(BRIDGE.resolve())
    done = subprocess.run(
        ["bash", "-eu", "-c", commands], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("by shared memory\nby RapidIO\nby RapidIO over UDP\n", "")
    assert done.returncode == 0


def test_every_way_is_measured_by_the_same_program() -> None:
    """What `incast bridge zmq` reads: two processes over each address, and the stages of their I/O threads."""
    measuring = Measuring(BRIDGE, seconds=0.1, warm_up=0.0)
    for way in WAYS.values():
        for kind in (LATENCY, STREAM):
            case = Case(way.name, kind, 1000, Ring(4, 4096) if way.has_rings else Ring(), has_stages=way.has_rings)
            reading = measuring.take(case)
            assert reading.messages_per_s > 0 and reading.cpu_s_per_message > 0
            assert (reading.round_trip_ns["p50"] > 0) if kind == LATENCY else not reading.round_trip_ns
            if way.has_rings:
                assert all(reading.send[stage] > 0 for stage in ("encode", "copy_in", "post", "wait_cpu"))
                assert all(reading.receive[stage] > 0 for stage in ("decode", "copy_out", "post", "wait_cpu"))
