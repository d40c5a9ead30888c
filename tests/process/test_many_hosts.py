"""Runs over many hosts by one command: hosts are network namespaces, reached by ssh as real ones are.

INCAST_CLUSTER_HOSTS (2) and INCAST_CLUSTER_KILLS (1 of each kind) make it larger.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from cluster import Cluster, cluster_of, command_line, others_find, seconds_until_empty, shown
from support import ROOT, wait_until

pytest.importorskip("ClusterShell", reason="needs ClusterShell: pip install 'incast[hosts]'")

HOSTS = int(os.environ.get("INCAST_CLUSTER_HOSTS", "2"))
KILLS = int(os.environ.get("INCAST_CLUSTER_KILLS", "1"))
NODES = 2 * HOSTS
TRANSPORTS = ["tcp", "udp"]
# From the first to join by hand on.
JOIN_DELAYS_S = (0, 5, 20) if KILLS > 1 else (0,) * HOSTS
EVENTS_SHOWN = "/s events"  # by the view of any run
ALL = f"node[1-{HOSTS}]"
TOKEN = "5e1f0d3ab9c24786ad01f3e2c6b7985d"
Record = Callable[[str, object], None]  # of pytest's record_property: `--junitxml` shows it
# A machine under load does everything later.
WITHIN_S = 10.0
SLOW_S = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All tests of this module share it; each leaves it empty."""
    with cluster_of(HOSTS, tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def environment(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine under test is that of the command."""
    monkeypatch.setenv("INCAST_NODE", str(engine))
    monkeypatch.delenv("INCAST_TOKEN", raising=False)
    # What Open MPI wants to hear from root.
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")


class Command:
    """`incast` on the head of a cluster."""

    def __init__(self, cluster: Cluster, folder: Path, *words: str, before: Sequence[str] = ()) -> None:
        """`before`: a command that runs this one."""
        self.folder = folder
        self.output = folder / "out"
        self.log = folder / "stderr"
        self._cluster = cluster
        with self.log.open("w") as errors, (folder / "stdout").open("w") as said:
            self.process = subprocess.Popen(
                cluster.words(*before, *cluster.python(), *words, "--output", str(self.output)),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
                cwd=folder,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """After a failure: nothing is left of it."""
        for pid in self._cluster.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def wait_for(self, text: str) -> None:
        """Until it has said so."""

        def is_there() -> bool:
            assert self.process.poll() is None or text in self.said(), self.said()
            return text in self.said()

        wait_until(is_there, f"'{text}' in {self.said()}", SLOW_S)

    def said(self) -> str:
        """On standard error."""
        return self.log.read_text()

    def finish(self) -> int:
        """Its exit status."""
        return self.process.wait(SLOW_S)

    def result(self) -> dict[str, Any]:
        """result.json"""
        loaded: dict[str, Any] = json.loads((self.output / "result.json").read_text())
        return loaded


def by_ssh(cluster: Cluster, *more: str) -> list[str]:
    return [
        "run",
        "--hosts",
        ALL,
        "--ssh",
        f"ssh -F {cluster.ssh_config}",
        "--nodes",
        str(NODES),
        "--sink",
        "verify",
        *more,
    ]


LIGHT = ("--warm-up", "100ms", "--mfp-size", "16KiB", "--trigger-rate", "1kHz")
SHORT = ("--duration", "1s", *LIGHT)  # long enough for a line of the view
LONG = ("--duration", "1h", *LIGHT)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("transport", TRANSPORTS if KILLS > 1 else TRANSPORTS[:1])
def test_one_command_runs_on_all_hosts(cluster: Cluster, tmp_path: Path, transport: str) -> None:
    with Command(cluster, tmp_path, *by_ssh(cluster, *SHORT, "--transport", transport)) as run:
        assert run.finish() == 0, run.said()
        seconds_until_empty(cluster, SLOW_S)
    result = run.result()
    assert result["status"] == "complete"
    assert result["lost_events"] == 0
    assert result["verify_errors"] == 0
    places = [node["place"] for node in result["nodes"]]
    assert [place["host"] for place in places] == [name for name in cluster.names for _ in range(2)]
    assert [place["address"] for place in places] == [cluster.address(node // 2 + 1) for node in range(NODES)]
    assert {(place["interface"], place["mtu"]) for place in places} == {("eth0", 1500)}
    assert EVENTS_SHOWN in run.said()


SCAN = f"""seconds = 0.2
warm_up_seconds = 0.05
[set]
protocol.mfp_size = "16KiB"
source.fragment_size = "100B"
[grid]
run.nodes = [1, {NODES}]
"""


@pytest.mark.usefixtures("environment")
def test_a_scan_measures_its_points_on_the_hosts(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "points.toml"
    file.write_text(SCAN)
    words = ["scan", str(file), "--hosts", ALL, "--ssh", f"ssh -F {cluster.ssh_config}"]
    with Command(cluster, tmp_path, *words) as scan:
        assert scan.finish() == 0, scan.said()
        seconds_until_empty(cluster, SLOW_S)
    # Few nodes are on the first hosts.
    for point, names in ((1, cluster.names[:1]), (2, [name for name in cluster.names for _ in range(2)])):
        result = json.loads((scan.output / "readings" / f"{point:04}-1" / "result.json").read_text())
        assert [node["place"]["host"] for node in result["nodes"]] == names
    again = subprocess.run(
        cluster.words(*cluster.python(), "scan", "--resume", str(scan.output)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 2
    assert f"was begun with --hosts {','.join(cluster.names)}; allowed: the same" in again.stderr


FIREWALL = """table inet incast {
    chain input {
        type filter hook input priority 0;
        iifname "eth1" tcp flags & (syn | ack) == syn tcp dport != 40000-40001 drop
        iifname "eth1" udp dport != 40000-40001 drop
    }
}
"""


@pytest.fixture
def firewall(cluster: Cluster) -> Iterator[None]:
    """Of every host: two ports of its second network are open."""
    if shutil.which("nft") is None:
        pytest.skip("there is no nft")
    for host in range(1, HOSTS + 1):
        words = cluster.words("nft", "-f", "-", host=host)
        made = subprocess.run(words, input=FIREWALL, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"this host has no firewall: {made.stderr.strip()}")
    yield
    for host in range(1, HOSTS + 1):
        subprocess.run(cluster.words("nft", "delete", "table", "inet", "incast", host=host), check=True)


@pytest.mark.usefixtures("environment", "firewall")
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--interface", "eth1", "--transport", "tcp"], id="tcp"),
        pytest.param(["--subnet", "10.78.0.0/16", "--transport", "udp"], id="udp"),
    ],
)
def test_data_takes_the_chosen_network_and_ports(cluster: Cluster, tmp_path: Path, words: list[str]) -> None:
    with Command(cluster, tmp_path, *by_ssh(cluster, *words, "--ports", "40000-40001", *SHORT)) as run:
        assert run.finish() == 0, run.said()
        seconds_until_empty(cluster, SLOW_S)
    result = run.result()
    assert result["lost_events"] == 0
    places = [node["place"] for node in result["nodes"]]
    assert [place["address"] for place in places] == [cluster.address(node // 2 + 1, 1) for node in range(NODES)]
    assert {place["interface"] for place in places} == {"eth1"}


NO_NETWORK = [
    pytest.param(
        ["--interface", "ib7"],
        r"run.network = ib7: node\d: this host has no such interface; it has lo \(",
        id="interface",
    ),
    pytest.param(
        ["--subnet", "10.79.0.0/16"],
        r"10.79.0.0/16: node\d: no address of this host lies in it; it has lo",
        id="subnet",
    ),
    pytest.param(["--ports", "40000-40000"], r"node\d: .*no port of 40000-40000 is free at 10.77.0.\d", id="ports"),
]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(("words", "line"), NO_NETWORK if KILLS > 1 else NO_NETWORK[1:])
def test_a_host_without_that_network_is_one_line(cluster: Cluster, tmp_path: Path, words: list[str], line: str) -> None:
    with Command(cluster, tmp_path, *by_ssh(cluster, *words, *SHORT)) as run:
        assert run.finish() == 1, run.said()
        assert re.search(line, run.said()), run.said()
        seconds_until_empty(cluster, SLOW_S)


# By words of their command lines; the first word may be any.
VICTIMS = {
    "command": ("-m", "incast", "run"),
    "fan-out": ("incast.hosts.fanout",),
    "ssh": ("ssh", "-F"),
    "sshd": ("sshd: root@notty",),
    "nodes of a host": ("--join", "--count"),
    "node": ("--watched-by", "--node"),
    "coordinator": ("--spawn",),
}


def victims(cluster: Cluster, kind: str) -> list[int]:
    def is_one(pid: int) -> bool:
        words = command_line(pid).split()
        begins_so = kind not in ("ssh", "nodes of a host") or Path(words[0]).name.startswith(
            "ssh" if kind == "ssh" else "incast-node"
        )
        return begins_so and words[0] not in ("ip", "salloc")

    return [pid for pid in cluster.find(*VICTIMS[kind]) if is_one(pid)]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("kind", VICTIMS if KILLS > 1 else ("command", "nodes of a host"))
@pytest.mark.parametrize("turn", range(KILLS))
def test_whatever_is_killed_nothing_is_left(
    cluster: Cluster, tmp_path: Path, kind: str, turn: int, record_property: Record
) -> None:
    with Command(cluster, tmp_path, *by_ssh(cluster, *LONG, "--set", "run.on_loss=stop")) as run:
        run.wait_for("\nmeasuring")
        found = victims(cluster, kind)
        assert found, shown(cluster)
        os.kill(found[turn % len(found)], signal.SIGKILL)
        took_s = seconds_until_empty(cluster, SLOW_S)
        record_property("left_s", round(took_s, 1))
        assert run.finish() != 0 or kind == "fan-out", run.said()
        assert took_s < WITHIN_S or KILLS == 1, f"{took_s:.1f} s"


def texts_of(cluster: Cluster, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Everything that others might read: command lines, environments, files."""
    for pid in cluster.pids():
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                yield f"{name} of {command_line(pid)}", Path(f"/proc/{pid}/{name}").read_bytes()
    for file in folder.rglob("*"):
        if file.is_file() and file.stat().st_mode & 0o077:
            yield str(file), file.read_bytes()


def check_others(found: str) -> None:
    """They find what stands on a command line, and the token nowhere."""
    assert others_find(found) != []
    assert others_find(TOKEN) == []


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("detached", [False, True])
def test_nobody_else_can_read_the_token_and_ctrl_c_ends_it(cluster: Cluster, tmp_path: Path, detached: bool) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(TOKEN + "\n")
    more = ["--detach"] if detached else []
    with Command(cluster, tmp_path, *by_ssh(cluster, *LONG, "--token-file", str(secret), *more)) as run:
        if detached:
            assert run.finish() == 0, run.said()
        else:
            run.wait_for("\nmeasuring")
        wait_until(lambda: len(victims(cluster, "node")) == NODES, "all nodes", SLOW_S)
        seen = list(texts_of(cluster, tmp_path.parent)) + list(texts_of(cluster, cluster.folder))
        assert len(seen) > 2 * NODES
        assert [where for where, text in seen if TOKEN.encode() in text] == []
        check_others("--watched-by")
        if not detached:
            run.process.send_signal(signal.SIGINT)
        else:
            stop = cluster.incast("stop", str(run.output))
            subprocess.run(stop, check=True, timeout=SLOW_S, capture_output=True)
        assert run.finish() == 0, run.said()
        assert run.result()["status"] == "interrupted"
        seconds_until_empty(cluster, SLOW_S)
    assert [where for where, text in texts_of(cluster, tmp_path) if TOKEN.encode() in text] == []


REFUSED = [
    pytest.param(["--hosts", "node1,node99"], "node99: .*(resolve|not known|status 255)", id="unknown-host"),
    pytest.param(["--hosts", "node1", "--transport", "shm"], "allowed with other hosts: tcp", id="shm"),
    pytest.param(["--hosts", "node[1-"], "--hosts: 'node", id="no-list"),
    pytest.param(["--hosts", "node1:3,node2:2", "--nodes", "4"], "the hosts take 5 nodes, the run has 4", id="slots"),
    pytest.param(["--hosts", "-oProxyCommand=true"], "no name of a host", id="option"),
    pytest.param(["--hostfile", "nowhere"], "--hostfile nowhere: No such file", id="no-file"),
    pytest.param(["--hosts", "node1", "--launcher", "pigeon"], "allowed: ssh, local, mpirun", id="launcher"),
    pytest.param(["--deploy"], "--deploy: no hosts are given", id="no-hosts"),
    pytest.param(["--subnet", "10.1.0.0"], "--subnet 10.1.0.0: no subnet; allowed: one such", id="subnet"),
    pytest.param(["--wait-for", "9", "--nodes", "4"], "the run has 4 nodes; allowed: 1..4", id="wait-for"),
]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(("words", "line"), REFUSED)
def test_what_cannot_begin_is_one_line(cluster: Cluster, tmp_path: Path, words: list[str], line: str) -> None:
    with Command(cluster, tmp_path, "run", "--ssh", f"ssh -F {cluster.ssh_config}", *words) as run:
        assert run.finish() in (1, 2)
        assert len(run.said().splitlines()) == 1, run.said()
        assert re.search(line, run.said()), run.said()
        assert not run.output.exists()
        seconds_until_empty(cluster, SLOW_S)


@pytest.mark.usefixtures("environment")
def test_another_version_is_refused_before_anything_starts(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Path
) -> None:
    """Both hosts see the same files here, so it is the head's engine that says another version."""
    other = tmp_path / "bin" / "incast-node"
    other.parent.mkdir()
    other.write_text(
        '#!/bin/sh\nif [ "$1" = --version ] && [ -z "$SSH_CONNECTION" ]; then\n'
        f'{engine} "$@" | sed "s/ [^ ]* / 9.9.9 /"\n'
        f'else exec {engine} "$@"\nfi\n'
    )
    other.chmod(0o755)
    monkeypatch.setenv("INCAST_NODE", str(other))
    with Command(cluster, tmp_path, *by_ssh(cluster, *SHORT)) as run:
        assert run.finish() == 127
        assert re.fullmatch(r"incast: --hosts: node1: .* is version .*, this one 9\.9\.9; .*\n", run.said()), run.said()
        assert not run.output.exists()


@pytest.mark.usefixtures("environment")
def test_the_engine_is_copied_where_it_is_not(cluster: Cluster, tmp_path: Path, engine: Path) -> None:
    with Command(cluster, tmp_path, *by_ssh(cluster, "--deploy", "--em", "own", *SHORT)) as run:
        assert run.finish() == 0, run.said()
    assert len(run.result()["nodes"]) == NODES + 1  # the event manager is on the last host
    copies = list((cluster.home / ".cache" / "incast").glob("*/bin/incast-node"))
    assert [copy.read_bytes() == engine.read_bytes() for copy in copies] == [True]
    assert [path for path in (cluster.home / ".cache" / "incast").iterdir() if "." in path.name] == []


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("transport", TRANSPORTS if KILLS > 1 else TRANSPORTS[:1])
@pytest.mark.parametrize("asked", [False, True])
def test_others_join_by_hand(cluster: Cluster, tmp_path: Path, asked: bool, transport: str) -> None:
    # With one of its own, the event manager is the last node, and so elsewhere.
    own = int(asked)
    guests = 2 * (HOSTS - 1) + own
    words = ["run", "--nodes", str(NODES), "--wait-for", str(guests), "--listen", cluster.address(0), *SHORT]
    words += ["--transport", transport, "--em", "own" if own else "shared"]
    with Command(cluster, tmp_path, *words) as run:
        run.wait_for("started by: ")
        found = re.search(r"started by: (incast join (\S+)(?: --nodes \d+)? --token-file (\S+))\n", run.said())
        assert found, run.said()
        token = Path(found[3])
        assert token.stat().st_mode & 0o777 == 0o600
        joins = []
        began = time.monotonic()
        for host, delay_s in zip(range(2, HOSTS + 1), JOIN_DELAYS_S, strict=False):
            wait_until(lambda after_s=delay_s: time.monotonic() - began >= after_s, "the next to join", SLOW_S)
            line = [
                "join",
                found[2],
                *([] if asked else ["--token-file", found[3]]),
                "--nodes",
                str(2 + (own if host == HOSTS else 0)),
            ]
            with token.open() as text:
                joins.append(
                    subprocess.Popen(cluster.incast(*line, host=host), stdin=text if asked else None, cwd=tmp_path)
                )
        assert run.finish() == 0, run.said()
        assert [join.wait(SLOW_S) for join in joins] == [0] * len(joins)
        assert run.result()["lost_events"] == 0
        assert EVENTS_SHOWN in run.said()
        assert "ledger_error" not in run.result()["accounting"]
        assert (run.output / "ledger.bin").read_bytes() == (tmp_path if own else run.output).joinpath(
            "ledger.bin"
        ).read_bytes()
        assert not token.exists()
        seconds_until_empty(cluster, SLOW_S)


MPICH = "mpiexec.mpich"
MPI = {"mpirun.openmpi": "openmpi-bin", MPICH: "mpich"}
HOW = TRANSPORTS[:1]
if KILLS > 1:
    KILLED = ("command", "fan-out", "nodes of a host", "launcher")
    HOW = [*TRANSPORTS, *(f"{what} #{turn}" for what in KILLED for turn in range(KILLS))]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("launcher", MPI)
def test_mpi_launchers_start_the_nodes(
    cluster: Cluster, tmp_path: Path, launcher: str, how: str, record_property: Record
) -> None:
    if shutil.which(launcher) is None:
        pytest.skip(f"there is no {launcher} (package {MPI[launcher]})")
    words = ["run", "--hosts", ALL, "--launcher", launcher, "--ssh", cluster.ssh_program, "--nodes", str(NODES)]
    words += ["--listen", cluster.address(0)]
    check_launcher(cluster, tmp_path, words, program=launcher, how=how, record=record_property)


@pytest.fixture(scope="module")
def slurm(cluster: Cluster) -> Cluster:
    """The same hosts, under Slurm."""
    cluster.open_slurm()
    return cluster


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("how", HOW)
def test_an_allocation_of_slurm_says_which_hosts(
    slurm: Cluster, tmp_path: Path, how: str, record_property: Record
) -> None:
    words = ["run", "--launcher", "srun", "--nodes", str(NODES), "--listen", slurm.address(0)]
    before = ["salloc", "--quiet", "--nodes", str(HOSTS)]
    check_launcher(slurm, tmp_path, words, program="srun", how=how, before=before, record=record_property)


def check_launcher(
    cluster: Cluster,
    folder: Path,
    words: list[str],
    *,
    program: str,
    how: str,
    record: Record,
    before: Sequence[str] = (),
) -> None:
    """A run over a transport, or one in which something is killed."""
    killed = None if how in TRANSPORTS else how.partition(" #")[0]
    words += ["--transport", how if killed is None else "tcp"]
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(TOKEN + "\n")
    words += ["--token-file", str(secret), *((*LONG, "--set", "run.on_loss=stop") if killed else SHORT)]
    with Command(cluster, folder, *words, before=before) as run:
        if killed is None:
            assert run.finish() == 0, run.said()
            assert run.result()["lost_events"] == 0
            assert len(run.result()["nodes"]) == NODES
            assert EVENTS_SHOWN in run.said()
            seconds_until_empty(cluster, SLOW_S)
            return
        run.wait_for("\nmeasuring")
        hold_it = [where for where, text in texts_of(cluster, folder) if TOKEN.encode() in text]
        if program == MPICH:  # an environment can be read by its owner alone; those of the nodes do not have it
            hold_it = [where for where in hold_it if not where.startswith("environ of ") or "--watched-by" in where]
        assert hold_it == []
        check_others("--watched-by")
        found = [pid for pid in cluster.find(program) if Path(command_line(pid).split()[0]).name == program]
        os.kill(found[0] if killed == "launcher" else victims(cluster, killed)[0], signal.SIGKILL)
        took_s = seconds_until_empty(cluster, SLOW_S)
        record("left_s", round(took_s, 1))
        assert took_s < WITHIN_S, f"{took_s:.1f} s"


def commands_of_the_page(kind: str) -> list[str]:
    """Those of docs/clusters.md that are for a cluster of node1 and node2."""
    text = (ROOT / "docs" / "clusters.md").read_text()
    return [line for block in re.findall(rf"```{kind}\n(.*?)```", text, re.S) for line in block.splitlines()]


@pytest.fixture
def programs(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the PATH with what the page takes for granted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    commands = {"ssh": [cluster.ssh_program], "incast": cluster.python()}
    commands |= {name.partition(".")[0]: [path] for name in MPI if (path := shutil.which(name))}
    for name, words in commands.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def do_as_the_page_says(cluster: Cluster, folder: Path, lines: list[str]) -> None:
    """Shorter, and names of hosts are known to ssh alone."""
    for line in lines:
        words = line.replace(
            "--duration 10s", "--events 2000" if " run " in line else "--duration 100ms --warm-up 50ms"
        )
        words = words.replace("seconds = 10", "seconds = 0.2")
        if "--launcher" in line:
            words += f" --listen {cluster.address(0)}"
        done = subprocess.run(
            cluster.words("sh", "-c", words), cwd=folder, capture_output=True, text=True, timeout=SLOW_S, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
    results = list((folder / "incast-results").glob("*/result.json"))
    assert len(results) == sum("incast run " in line or "incast net " in line for line in lines)
    assert all(json.loads(file.read_text())["status"] == "complete" for file in results)
    seconds_until_empty(cluster, SLOW_S)


@pytest.mark.skipif(KILLS == 1, reason="a longer one, with INCAST_CLUSTER_KILLS=2 and in .ci/run --all")
@pytest.mark.usefixtures("environment", "programs")
def test_the_commands_of_the_page_do_what_it_says(cluster: Cluster, tmp_path: Path) -> None:
    lines = commands_of_the_page("sh")
    assert len(lines) > 5
    do_as_the_page_says(cluster, tmp_path, lines)


@pytest.mark.usefixtures("environment", "programs")
@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec"])
def test_the_commands_of_the_page_for_mpi(cluster: Cluster, tmp_path: Path, launcher: str) -> None:
    lines = [line for line in commands_of_the_page("sh mpi") if launcher in line]
    assert lines
    if not (tmp_path / "bin" / launcher).exists():
        pytest.skip(f"there is no {launcher}")
    do_as_the_page_says(cluster, tmp_path, lines)


@pytest.mark.usefixtures("environment", "programs")
def test_the_commands_of_the_page_for_slurm(slurm: Cluster, tmp_path: Path) -> None:
    lines = commands_of_the_page("sh slurm")
    assert lines
    do_as_the_page_says(slurm, tmp_path, lines)


@pytest.mark.skipif(KILLS == 1, reason="a longer one, with INCAST_CLUSTER_KILLS=2 and in .ci/run --all")
@pytest.mark.usefixtures("environment", "programs")
def test_the_commands_of_the_page_by_hand(cluster: Cluster, tmp_path: Path) -> None:
    lines = [line.partition("#")[0] for line in commands_of_the_page("sh hand")]
    begin, join = lines
    words = shlex.split(begin.replace("10.0.0.1:4711", cluster.address(0)))
    assert words.pop(0) == "incast"
    with Command(cluster, tmp_path, *words, *SHORT) as run:
        run.wait_for("started by: ")
        found = re.search(r"started by: incast join (\S+)(?: --nodes \d+)? --token-file (\S+)\n", run.said())
        assert found, run.said()
        there = cluster.words("sh", "-c", join.replace("10.0.0.1:4711", found[1]), host=1)
        token = Path(found[2]).read_text()
        joined = subprocess.run(there, input=token, text=True, cwd=tmp_path, timeout=SLOW_S, check=False)
        assert joined.returncode == 0
        assert run.finish() == 0, run.said()
        assert len(run.result()["nodes"]) == 4
        seconds_until_empty(cluster, SLOW_S)


def test_every_command_of_the_page_is_one_of_these() -> None:
    """But for the installation, whose name is checked."""
    text = (ROOT / "docs" / "clusters.md").read_text()
    kinds = {"sh", "sh mpi", "sh slurm", "sh hand", "sh netns", ""}
    assert set(re.findall(r"^```(.+)$", text, re.M)) | {""} == kinds
    (rest,) = re.findall(r"^```\n(?=[.\w])(.*?)```", text, re.S | re.M)
    assert rest == ".venv/bin/pip install 'incast[hosts]'\n"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(each.startswith("ClusterShell") for each in extras["hosts"])
