"""The engines of other hosts: found there or copied, and asked for their version before anything starts."""

import hashlib
import io
import shlex
import socket
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from incast.base.errors import EXIT_NO_ENGINE, OneLineError
from incast.engine.program import ENGINE_NAME, VERSION_LINE, engine_version, find_engine
from incast.hosts.commands import Commands, Ended, Job, Said

_ASK_S = 40.0
_DEPLOY_S = 300.0
_NAMED = 3  # of the hosts where something is wrong
_EXIT_FAILED = 1

# $1...: where an engine may be. Says from where it was asked, which engine it found, and what that is.
_ASK = """
echo "asked $SSH_CONNECTION"
for place; do
    case $place in "~/"*) place=$HOME/${place#"~/"} ;; esac
    engine=$(command -v "$place") || continue
    echo "engine $engine"
    exec "$engine" --version
done
"""
# $1: the folder below the home directory, which is whole or not there.
_DEPLOY = """
set -e
folder=$HOME/${1#"~/"}
mkdir -p "$folder.$$"
trap 'rm -rf "$folder.$$"' EXIT
tar -xzf - -C "$folder.$$"
[ -x "$folder/bin/incast-node" ] || { rm -rf "$folder"; mv "$folder.$$" "$folder"; }
"""


@dataclass
class Answer:
    """What a host said."""

    asked_from: str = ""  # the address by which it sees this host
    engine: str = ""
    version: str = ""
    git: str = ""
    lines: list[str] = field(default_factory=list)
    status: int | None = None


def shell(script: str, *words: str) -> str:
    """A command line that any login shell reads alike."""
    return shlex.join(["sh", "-c", script, "sh", *words])


def answers_of(jobs: Sequence[Job], ssh: str, timeout_s: float) -> dict[str, Answer]:
    """Of all, when all have ended."""
    found = {job.label: Answer() for job in jobs}
    commands = Commands(jobs, ssh, timeout_s)
    try:
        while not commands.closed:
            for news in commands.news(0.5):
                match news:
                    case Said(label, text) if label in found:
                        found[label].lines.append(text)
                    case Said(_, text):
                        raise OneLineError(text, _EXIT_FAILED)
                    case Ended(label, status):
                        found[label].status = status
    finally:
        commands.kill()
    return found


def ask(hosts: Sequence[str], ssh: str, *, deploy: bool, say: Callable[[str], None]) -> dict[str, Answer]:
    """Where their engines are, all of this one's version. OneLineError: not so; nothing was started."""
    own, own_git = engine_version()
    engine = find_engine()
    places = [str(engine.resolve()), ENGINE_NAME]
    if deploy:
        folder, content = _package(engine)
        places = [f"{folder}/bin/{ENGINE_NAME}"]
        lacking = [host for host, answer in _ask(hosts, ssh, places).items() if not answer.engine]
        if lacking:
            say(f"copying the engine to {len(lacking)} host{'s' if len(lacking) > 1 else ''}: {folder}")
            jobs = [Job(host, host, shell(_DEPLOY, folder), content) for host in lacking]
            copied = answers_of(jobs, ssh, _DEPLOY_S)
            _refuse_if({host: _how(each) for host, each in copied.items() if each.status != 0}, "--deploy")
    answers = _ask(hosts, ssh, places)
    wrong: dict[str, str] = {}
    for host, answer in answers.items():
        if not answer.engine:
            wrong[host] = f"no {' and no '.join(places)} there; --deploy copies it"
        elif not answer.version:
            wrong[host] = f"{answer.engine} cannot be started: {_how(answer)}"
        elif answer.version != own:
            wrong[host] = f"{answer.engine} is version {answer.version}, this one {own}"
    _refuse_if(wrong, "--hosts", EXIT_NO_ENGINE)
    differing = [host for host, answer in answers.items() if answer.git != own_git]
    if differing:
        say(f"warning: another build of version {own} on {differing[0]}: {answers[differing[0]].git}, here {own_git}")
    return answers


def _ask(hosts: Sequence[str], ssh: str, places: Sequence[str]) -> dict[str, Answer]:
    answers = answers_of([Job(host, host, shell(_ASK, *places)) for host in hosts], ssh, _ASK_S)
    for answer in answers.values():
        for line in answer.lines:
            word, _, rest = line.partition(" ")
            if word == "asked":
                answer.asked_from = rest.partition(" ")[0]
            elif word == "engine":
                answer.engine = rest
            elif version := VERSION_LINE.fullmatch(line):
                answer.version, answer.git = version[1], version[2]
    failed = {host: _how(each) for host, each in answers.items() if each.status is None or each.status == 255}
    _refuse_if(failed, "--hosts")
    return answers


def _how(answer: Answer) -> str:
    words = [line for line in answer.lines if line.strip() and not line.startswith(("asked ", "engine "))]
    status = "it did not answer in time" if answer.status is None else f"status {answer.status}"
    return f"{words[-1].strip()} ({status})" if words else status


def _refuse_if(wrong: dict[str, str], where: str, status: int = _EXIT_FAILED) -> None:
    if wrong:
        words = [f"{host}: {why}" for host, why in list(wrong.items())[:_NAMED]]
        more = f"; and {len(wrong) - _NAMED} more hosts" if len(wrong) > _NAMED else ""
        raise OneLineError(f"{where}: {'; '.join(words)}{more}; nothing was started", status)


def _package(engine: Path) -> tuple[str, bytes]:
    """Name of the folder, and what belongs into it: the engine and its modules, laid out as in a build tree."""
    modules = sorted({*engine.parent.glob("*.so"), *(engine.parent.parent / "lib" / "incast").glob("*.so")})
    files = {f"bin/{ENGINE_NAME}": engine, **{f"lib/incast/{module.name}": module for module in modules}}
    if engine.parent.name == "_engine":  # of the Python package: modules lie beside the engine
        files = {f"bin/{file.name}": file for file in (engine, *modules)}
    digest = hashlib.sha256()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name, file in files.items():
            content = file.read_bytes()
            digest.update(name.encode() + b"\0" + content)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return f"~/.cache/incast/{digest.hexdigest()[:16]}", packed.getvalue()


def way_to(host: str) -> str:
    """The address of this host on the way to that one. OneLineError: its name is not known here."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        why = error.strerror or str(error)
        raise OneLineError(f"no way to {host}: {why}; --listen says where nodes join", _EXIT_FAILED) from error


def is_ours(address: str) -> bool:
    """Whether it is an address of this host."""
    try:
        family, kind, _, _, bound = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)[
            0
        ]
        with socket.socket(family, kind) as probe:
            probe.bind(bound)
    except OSError:
        return False
    return True


# The same on all hosts of a parallel launcher, whose output is one: a line each.
_ASK_EACH = """
for place; do
    engine=$(command -v "$place") || continue
    version=$("$engine" --version 2>&1 </dev/null | tail -n 1)
    echo "here $(uname -n)|$engine|$version"
    exit 0
done
echo "here $(uname -n)||"
"""


def ask_through(launcher: Sequence[str], hosts: Sequence[str], *, say: Callable[[str], None]) -> str:
    """Where the engine of all hosts is, asked by a parallel launcher."""
    own, _ = engine_version()
    place = str(find_engine().resolve())
    label = Path(launcher[0]).name
    words = [*launcher, "sh", "-c", _ASK_EACH, "sh", place, ENGINE_NAME]
    answer = answers_of([Job(label, None, "exec " + shlex.join(words))], "ssh", _ASK_S)[label]
    found = [line.removeprefix("here ").split("|") for line in answer.lines if line.startswith("here ")]
    if answer.status != 0 or len(found) != len(hosts):
        answer.lines = [line for line in answer.lines if not line.startswith("here ")]
        raise OneLineError(f"{label}: {_how(answer)}; nothing was started", _EXIT_FAILED)
    wrong = {}
    for host, engine, version in found:
        matched = VERSION_LINE.fullmatch(version)
        if not engine:
            wrong[host] = f"no {place} and no {ENGINE_NAME} there"
        elif matched is None:
            wrong[host] = f"{engine} cannot be started: {version}"
        elif matched[1] != own:
            wrong[host] = f"{engine} is version {matched[1]}, this one {own}"
    engines = {engine for _, engine, _ in found}
    if len(engines) > 1:
        wrong[found[0][0]] = f"its engine is {found[0][1]}, elsewhere there are {', '.join(sorted(engines))}"
    _refuse_if(wrong, "--hosts", EXIT_NO_ENGINE)
    say(f"{label}: {len(found)} hosts have {found[0][1]}")
    return found[0][1]
