"""A run spread over hosts: who launches its nodes, where they find their engine, and where they meet."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.engine.program import find_engine
from incast.engine.transports import transports
from incast.hosts.commands import Job
from incast.hosts.engines import ask, ask_through, is_ours, way_to
from incast.hosts.places import Place, Slots, parse_hosts, spread

LOCAL, SSH, SRUN = "local", "ssh", "srun"
BY_HAND = "by hand"
TOKEN_VARIABLE = "INCAST_TOKEN"
LAUNCHERS = "ssh, local, mpirun, mpiexec or srun"
_MPI = ("mpirun", "mpiexec", "orterun")
_ANY = "0.0.0.0"
_VERSION_S = 20.0

# Which task of a parallel launcher this is: $RANK.
_RANK = "${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}}"


@dataclass(frozen=True)
class Spread:
    """What stands before the run begins. Lists go by place."""

    launcher: str  # local, ssh, by hand, or the words that begin a parallel launcher's command line
    places: tuple[Place, ...]
    engines: tuple[str, ...]
    meet_at: tuple[str, ...]  # this host's address, as each place sees it; empty: as it listens
    listen: str  # empty: on loopback
    ssh: str
    nodes: int  # of the run, but for one that is the event manager alone
    here: int = 0  # those that the coordinator starts
    guests: int = 0  # those that others start by hand
    token_file: str = ""  # empty: a token is made up
    input_for_all: bool = True  # what the launcher reads reaches all; else only its environment does

    def to_json(self) -> dict[str, Any]:
        """For another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Spread":
        """What to_json() gave."""
        lists = {key: tuple(value) for key, value in content.items() if isinstance(value, list)}
        return cls(**{**content, **lists, "places": tuple(Place(**place) for place in content["places"])})

    def coordinator_words(self) -> list[str]:
        """Of the engine here, which conducts the run, and reads the token from its standard input."""
        return ["--token-file", "-", "--spawn", str(self.here), *(["--listen", self.listen] if self.listen else [])]

    def jobs(self, address: str, output: Path, token: str) -> list[Job]:
        """What starts the nodes, when the coordinator listens at `address`."""
        if self.launcher == BY_HAND:
            return []
        given = ("--token-file", "-", "--until-eof") if self.input_for_all else ()
        commands = [
            f"cd {shlex.quote(str(Path.cwd()))} 2>/dev/null; exec "
            + shlex.join(
                [
                    *(engine, "--join", _host_replaced(address, meet_at), *given),
                    *("--node", str(place.first), "--count", str(place.nodes), "--output", str(output.absolute())),
                ]
            )
            for place, engine, meet_at in zip(self.places, self.engines, self.meet_at, strict=True)
        ]
        line = token.encode() + b"\n"
        if self.launcher in (LOCAL, SSH):
            return [
                Job(
                    place.host,
                    place.host if self.launcher == SSH else None,
                    shlex.join(["sh", "-c", command]),
                    line,
                    holds=True,
                )
                for place, command in zip(self.places, commands, strict=True)
            ]
        words = shlex.split(self.launcher)
        command = "exec " + shlex.join([*words, *_by_rank(commands)])
        name = Path(words[0]).name
        if self.input_for_all:
            return [Job(name, None, command, line, holds=True)]
        return [Job(name, None, command, holds=True, environment={TOKEN_VARIABLE: token})]


def _by_rank(commands: Sequence[str]) -> list[str]:
    cases = "\n".join(f"{rank}) {command} ;;" for rank, command in enumerate(commands))
    return ["sh", "-c", f"case {_RANK} in\n{cases}\nesac"]


def _host_replaced(address: str, host: str) -> str:
    port = address.rpartition(":")[2]
    return address if not host else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host_of(address: str) -> str:
    return address[1 : address.index("]")] if address.startswith("[") and "]" in address else address.partition(":")[0]


def allocated_hosts() -> list[Slots]:
    """Those of the Slurm allocation that this process runs in; empty: it runs in none."""
    names = os.environ.get("SLURM_JOB_NODELIST", "")
    return [Slots(each.host, None) for each in parse_hosts(names, "SLURM_JOB_NODELIST")] if names else []


def prepare(
    slots: Sequence[Slots],
    nodes: int | None,
    *,
    extra: int = 0,
    launcher: str,
    listen: str | None,
    ssh: str,
    deploy: bool,
    say: Callable[[str], None],
) -> Spread:
    """Asks all hosts. OneLineError: the run cannot begin there, and nothing was started."""
    places = spread(slots, nodes, extra)
    total = sum(place.nodes for place in places) - extra
    hosts = [place.host for place in places]
    name = Path(launcher).name
    if deploy and launcher != SSH:
        raise OneLineError(f"--deploy: {launcher} copies nothing; allowed: with ssh", EXIT_BAD_CONFIG)
    if launcher == LOCAL:
        engine = str(find_engine().resolve())
        return Spread(LOCAL, places, (engine,) * len(places), ("",) * len(places), listen or "", ssh, total)
    if launcher == SSH:
        answers = ask(hosts, ssh, deploy=deploy, say=say)
        engines = tuple(answers[host].engine for host in hosts)
        if listen:
            return Spread(SSH, places, engines, ("",) * len(places), listen, ssh, total)
        seen = [answers[host].asked_from for host in hosts]
        meet_at = tuple(
            address if is_ours(address) else way_to(host) for host, address in zip(hosts, seen, strict=True)
        )
        return Spread(SSH, places, engines, meet_at, f"{_common(meet_at)}:0", ssh, total)
    program = _program_of(launcher, name)
    here = _host_of(listen) if listen else way_to(hosts[0])
    words, input_for_all = _parallel(program, name, hosts, here, ssh)
    engine = ask_through(words, hosts, say=say)
    at = listen or f"{_common((here,))}:0"
    none = ("",) * len(places)
    engines = (engine,) * len(places)
    return Spread(shlex.join(words), places, engines, none, at, ssh, total, input_for_all=input_for_all)


def must_spread(transport: str, launcher: str) -> None:
    """What the engine cannot know: it does not see who starts its nodes, and where. OneLineError: that cannot be."""
    if any(each.launch for each in transports() if each.name == transport):
        raise OneLineError(
            f"--transport {transport}: a launcher of its own starts its nodes, so this command cannot spread them over "
            f"hosts; allowed: on this host, or by hand (docs/transports/{transport}.md)",
            EXIT_BAD_CONFIG,
        )
    if launcher == LOCAL:
        return
    able = [each.name for each in transports() if each.rank_across > 0 or not (each.in_process or each.shares_memory)]
    known = [each.name for each in transports()]
    if transport in known and transport not in able:
        raise OneLineError(
            f"--transport {transport}: its nodes are all on one host; allowed with other hosts: {', '.join(able)}",
            EXIT_BAD_CONFIG,
        )


def by_hand(guests: int, nodes: int, extra: int, listen: str, token_file: str) -> Spread:
    """A run of `nodes`, and `extra` of the event manager, that waits for `guests` of them."""
    all_ = nodes + extra
    if not 0 < guests <= all_:
        raise OneLineError(f"--wait-for {guests}: the run has {all_} nodes; allowed: 1..{all_}", EXIT_BAD_CONFIG)
    return Spread(BY_HAND, (), (), (), listen, SSH, nodes, all_ - guests, guests, token_file)


def _common(addresses: Sequence[str]) -> str:
    """Where to listen so that all of them are heard."""
    if len(set(addresses)) > 1:
        return "[::]" if any(":" in address for address in addresses) else _ANY
    return f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]


def _program_of(launcher: str, name: str) -> str:
    program = shutil.which(launcher)
    if program is None or not (name.startswith(SRUN) or name.startswith(_MPI)):
        why = "there is no such program" if program is None else "unknown"
        raise OneLineError(f"--launcher {launcher}: {why}; allowed: {LAUNCHERS}", EXIT_BAD_CONFIG)
    return program


def _parallel(program: str, name: str, hosts: Sequence[str], here: str, ssh: str) -> tuple[list[str], bool]:
    """The words that start a task on each host, bound to no core; and whether each reads what the launcher reads."""
    count = str(len(hosts))
    if name.startswith(SRUN):
        shape = ["--nodes", count, "--ntasks", count, "--ntasks-per-node", "1", "--nodelist", ",".join(hosts)]
        return [program, *shape, "--mpi=none", "--cpu-bind=none", "--overlap", "--quiet"], True
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OneLineError(f"--launcher {name}: it does not say its version: {error}", EXIT_BAD_CONFIG) from error
    if "Open MPI" in asked.stdout or "OpenRTE" in asked.stdout:
        agent = [] if ssh == SSH else ["--mca", "plm_rsh_agent", ssh]
        bound = ["--map-by", "ppr:1:node", "--bind-to", "none", "--oversubscribe", "--stdin", "all"]
        return [program, *agent, "--host", ",".join(hosts), "-np", count, *bound], True
    if "HYDRA" in asked.stdout or "MPICH" in asked.stdout or "Intel" in asked.stdout:
        agent = [] if ssh == SSH else ["-launcher-exec", ssh]
        shape = ["-hosts", ",".join(hosts), "-localhost", here, "-ppn", "1", "-n", count]
        return [program, *agent, *shape], False
    said = (asked.stdout.strip() or "nothing").splitlines()[0]
    raise OneLineError(f"--launcher {name}: neither Open MPI nor MPICH, it says '{said}'", EXIT_BAD_CONFIG)
