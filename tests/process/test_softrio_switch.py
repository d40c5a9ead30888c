"""`softrio switch`: endpoints, each a process, behind a switch that is programmed while they run."""

import os
import random
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import wait_until

DEADLINE_MS = 400


class Fabric:
    """A switch with a table, and endpoints 5 and 6 that serve, at ports 0 and 1."""

    def __init__(self, engine: Path, folder: Path) -> None:
        self.command = [str(engine.with_name("softrio"))]
        self.folder = folder
        self.table = folder / "table.toml"
        self.table.write_text("[ports]\n5 = 0\n6 = 1\n")
        self.processes: list[subprocess.Popen[str]] = []
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("RIO_")}
        self.switch = self.start("switch", "switch", "--table", str(self.table))
        wait_until(lambda: "\n" in self.said("switch"), "the switch says where it is")
        fabric = self.said("switch").split("\n")[0].removeprefix("RIO_FABRIC=")
        self.environment["RIO_FABRIC"] = f"{fabric}?deadline_ms={DEADLINE_MS}"
        for destid in ("5", "6"):
            self.start(destid, "--destid", destid, "serve")
            wait_until(lambda name=destid: "window" in self.said(name), f"endpoint {destid} serves")

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        with (self.folder / f"{name}.out").open("w") as out, (self.folder / f"{name}.err").open("w") as err:
            made = subprocess.Popen(
                [*self.command, *arguments], stdout=out, stderr=err, text=True, env=self.environment
            )
        self.processes.append(made)
        return made

    def said(self, name: str, stream: str = "out") -> str:
        return (self.folder / f"{name}.{stream}").read_text()

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments], capture_output=True, text=True, timeout=60, env=self.environment, check=False
        )

    def does(self, *arguments: str) -> str:
        """What a command that has to succeed prints."""
        done = self(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def program(self, text: str, stream: str = "out") -> str:
        """Makes the switch read that; the line with which it answers."""
        before = self.said("switch", stream)
        self.table.write_text(text)
        self.switch.send_signal(signal.SIGHUP)
        name = str(self.table)
        wait_until(lambda: name in self.said("switch", stream)[len(before) :], "an answer of the switch")
        answers = self.said("switch", stream)[len(before) :].splitlines()
        return next(line for line in answers if name in line)


@pytest.fixture
def fabric(engine: Path, tmp_path: Path) -> Iterator[Fabric]:
    """Its processes end with the test."""
    made = Fabric(engine, tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def counted(text: str) -> dict[int, dict[str, int]]:
    """By port, of the last time that the switch printed what it has counted."""
    line = r"^port (\d+), .*: in (\d+) datagrams, (\d+) bytes, (\d+) discarded; out (\d+) datagrams, (\d+) bytes$"
    names = ("in", "bytes_in", "discarded", "out", "bytes_out")
    return {int(found[0]): dict(zip(names, map(int, found[1:]), strict=True)) for found in re.findall(line, text, re.M)}


def test_endpoints_do_not_see_the_switch(fabric: Fabric) -> None:
    assert fabric.does("list").splitlines()[1:] == ["5", "6"]
    fabric.does("write", "5", "through the switch")
    assert "through the swit" in fabric.does("read", "5", "16")
    fabric.does("doorbell", "6", "7")
    assert fabric.does("cm", "6", "are you there?") == "endpoint 6 answers: are you there?\n"
    large = fabric("perf", "5", "--only", "write", "--up-to", "1048576", "--seconds", "0.01")
    assert large.returncode == 0, large.stderr
    assert re.search(r"^endpoint 5: 127\.0\.0\.1:\d+, port 0$", fabric.said("switch"), re.M)
    assert re.search(r"^endpoint 6: 127\.0\.0\.1:\d+, port 1$", fabric.said("switch"), re.M)
    fabric.switch.send_signal(signal.SIGUSR1)
    wait_until(lambda: "from strangers: 0 datagrams" in fabric.said("switch"), "counters")
    fabric.switch.send_signal(signal.SIGINT)
    assert fabric.switch.wait(20) == 0
    ports = counted(fabric.said("switch"))
    assert ports[0]["bytes_out"] > 1 << 20
    assert ports[2]["bytes_in"] > 1 << 20, "the port of those who have asked, one after the other"
    assert sum(port["in"] for port in ports.values()) == sum(port["out"] + port["discarded"] for port in ports.values())


def test_the_table_is_read_again(fabric: Fabric) -> None:
    fabric.does("write", "5", "before")
    assert fabric.program('[routes]\n5 = "discard"\n') == f"table {fabric.table}"
    done = fabric("write", "5", "lost")
    assert done.returncode == 1
    assert done.stderr.endswith("of endpoint 5: No such device\n")
    fabric.does("write", "6", "still there")
    complaint = fabric.program("[routes]\n5 = 'own'\n6 = 'nowhere'\n", "err")
    assert complaint == (
        f'softrio switch: {fabric.table}: [routes] 6: must be "own", "discard" or the number of a port, '
        "0..1023; the table before stays"
    )
    assert fabric("write", "5", "lost").returncode == 1
    fabric.program("")
    assert "before" in fabric.does("read", "5", "6")
    fabric.does("write", "5", "after")
    fabric.switch.send_signal(signal.SIGTERM)
    assert fabric.switch.wait(20) == 0
    assert counted(fabric.said("switch"))[2]["discarded"] > 0, "at the port where those came in"


def test_a_route_may_differ_by_input_port(fabric: Fabric) -> None:
    fabric.program("[from.2]\n5 = 'discard'\n[ports]\n77 = 3\n")
    assert fabric("--destid", "76", "write", "5", "lost").returncode == 1, "from port 2, the lowest that is free"
    fabric.does("--destid", "77", "write", "5", "from elsewhere")
    assert "from elsewhere" in fabric.does("--destid", "77", "read", "5", "14")


def test_a_multicast_group_is_the_switchs(fabric: Fabric) -> None:
    assert "No such device" in fabric("write", "40000", "to all", "--unanswered").stderr
    fabric.program("[multicast]\n40000 = [5, 6]\n")
    fabric.does("write", "40000", "to all", "--unanswered")
    for destid in ("5", "6"):
        wait_until(lambda name=destid: "to all" in fabric.does("read", name, "6"), f"the text at endpoint {destid}")
    assert "Invalid argument" in fabric("write", "40000", "to all").stderr


def memory_of(pid: int) -> int:
    """Bytes in memory."""
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) * 1024


def test_strangers_in_numbers_change_nothing(fabric: Fabric) -> None:
    """Datagrams of all kinds at the addresses of endpoints, and connections that say nonsense or nothing."""
    fabric.does("write", "5", "before")
    host, _, port = fabric.environment["RIO_FABRIC"].removeprefix("udp:host:").partition("?")[0].rpartition(":")
    where = (host, int(port))
    with socket.create_connection(where, 10) as joined, joined.makefile("rw") as lines:
        lines.write("softrio-join 1 77 9\n")
        lines.flush()
        there = dict(line.split()[1:3] for line in iter(lines.readline, "you 77\n") if line.startswith("there "))
    places = [(host, int(there[destid].rpartition(":")[2])) for destid in ("5", "6")]
    memory = memory_of(fabric.switch.pid)
    rng = random.Random(7)
    genuine = b"\x52\x49" + rng.randbytes(62)
    kinds = [b"", b"\0", rng.randbytes(3), rng.randbytes(64), genuine, rng.randbytes(1400), rng.randbytes(60_000)]
    silent = [socket.create_connection(where, 10) for _ in range(80)]
    try:
        for number in range(200):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:  # each from a port of its own
                for place in places:
                    for kind in kinds:
                        stranger.sendto(kind, place)
            if number % 2 == 0:
                with socket.create_connection(where, 10) as loud:
                    loud.sendall(rng.randbytes(16) + b"\n")
            if number % 50 == 0:
                fabric.does("write", "6", f"meanwhile {number}")
        assert "before" in fabric.does("read", "5", "6")
        assert "meanwhile 150" in fabric.does("read", "6", "13")
    finally:
        for one in silent:
            one.close()
    assert memory_of(fabric.switch.pid) < memory + (8 << 20)
    fabric.switch.send_signal(signal.SIGINT)
    assert fabric.switch.wait(20) == 0
    strangers = re.search(r"from strangers: (\d+) datagrams, dropped", fabric.said("switch"))
    assert strangers is not None
    assert int(strangers[1]) > 0
    said = fabric.said("switch", "err").splitlines()
    assert 20 < len(said) < 100, "of more than 100 strangers"
    assert re.search(r"and before it \d+ more|\d+ more were refused", "\n".join(said)), said


def test_a_bad_table_at_the_start_is_one_line(engine: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.toml"
    table.write_text("[multicast]\n40000 = []\n")
    done = subprocess.run(
        [str(engine.with_name("softrio")), "switch", "--table", str(table)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    expected = f"{table}: [multicast] 40000: must be a list of 1..1024 destination ids, as [1, 2]"
    assert done.stderr == f"softrio: {expected}\n"
