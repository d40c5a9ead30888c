"""Runs the tests of programs that use ZeroMQ, unchanged, over another transport, and compares with the same over tcp.

    python3 bridges/zmq/users_tests.py pyzmq|czmq OUT --turn shm|rio [--known FILE] [--only NAME...]

OUT is what `build.sh OUT` made: its libzmq.so.5 stands in for the one that the users bring or are linked with. `pyzmq`
gets the wheel and the sources of pyzmq from the package index and runs the tests in the sources; the files that are
left out are those of PYZMQ_LEFT_OUT. `czmq` gets Debian's source package through apt and runs each test of
`czmq_selftest`. Everything is kept in OUT/users. Each test runs twice: as it is, over tcp and ipc, and with turn.so,
which turns these endpoints (turn.c). What passes as it is and fails turned is a difference. Exit status 1 if there is
one that --known does not name, or if nothing was turned.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
import xml.etree.ElementTree
from pathlib import Path

PYZMQ = "27.1.0"
PYZMQ_NEEDS = (f"pyzmq=={PYZMQ}", "pytest<9", "pytest-asyncio<1", "pytest-timeout", "tornado", "gevent")
# No socket of theirs has an address that could be turned, or they need a compiler, a network or another system.
PYZMQ_LEFT_OUT = ("cffi_backend", "cython", "ext", "imports", "includes", "mypy", "ssh", "version", "win32_shim", "z85")
CZMQ = "4.2.1"


def read_known(path: Path | None) -> dict[str, str]:
    """Tests that fail, and why: `[WAY ]NAME: reason` a line; NAME has colons, but none with a space behind it."""
    if path is None:
        return {}
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, _, reason in (line.partition(": ") for line in lines)}


class UsersError(Exception):
    """One line."""


def run(command: list[str], folder: Path, log: Path) -> None:
    """Until it ends; what it says goes to the log."""
    with log.open("a") as file:
        status = subprocess.run(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    if status != 0:
        raise UsersError(f"{' '.join(command[:4])} ... failed: {log}")


class Users:
    """Programs with tests of their own."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.home = out / "users"
        self.home.mkdir(exist_ok=True)
        self.log = self.home / "make.log"

    def names(self) -> list[str]:
        """What can run by itself."""
        raise NotImplementedError

    def command(self, name: str, report: Path) -> list[str]:
        raise NotImplementedError

    def outcomes(self, name: str, report: Path, status: int) -> dict[str, str]:
        """`pass`, `skip` or `fail` of each test; `status` is that of the process."""
        raise NotImplementedError

    def folder(self) -> Path:
        return self.home


class Pyzmq(Users):
    def __init__(self, out: Path) -> None:
        super().__init__(out)
        self.python = self.home / "venv/bin/python"
        self.source = self.home / f"pyzmq-{PYZMQ}"
        if not self.python.exists():
            venv.create(self.home / "venv", with_pip=True)
        run([str(self.python), "-m", "pip", "install", "-q", *PYZMQ_NEEDS], self.home, self.log)
        archive = self.home / f"pyzmq-{PYZMQ}.tar.gz"
        if not archive.exists():
            get = [str(self.python), "-m", "pip", "download", "-q", "--no-deps"]
            run([*get, "--no-binary", ":all:", f"pyzmq=={PYZMQ}"], self.home, self.log)
        if not self.source.is_dir():
            shutil.unpack_archive(archive, self.home)
        # Apart from the sources: their package zmq would be taken for the installed one.
        self.tests = self.home / "pyzmq"
        shutil.rmtree(self.tests, ignore_errors=True)
        shutil.copytree(self.source / "tests", self.tests / "tests")
        shutil.copy(self.source / "pytest.ini", self.tests)

    def names(self) -> list[str]:
        found = sorted(path.stem.removeprefix("test_") for path in (self.tests / "tests").glob("test_*.py"))
        return [name for name in found if name not in PYZMQ_LEFT_OUT]

    def command(self, name: str, report: Path) -> list[str]:
        options = ["-q", "--timeout", "60", "-p", "no:cacheprovider", "--durations=0", f"--junitxml={report}"]
        return [str(self.python), "-W", "ignore", "-m", "pytest", *options, f"tests/test_{name}.py"]

    def outcomes(self, name: str, report: Path, status: int) -> dict[str, str]:
        if not report.exists():
            return {f"{name}::all": "fail"}
        found = {}
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            words = {child.tag for child in case}
            what = "fail" if words & {"failure", "error"} else "skip" if "skipped" in words else "pass"
            inside = (case.get("classname") or "").rpartition(f"test_{name}")[2].lstrip(".")
            found["::".join(filter(None, (name, inside, case.get("name"))))] = what
        return found

    def folder(self) -> Path:
        return self.tests


class Czmq(Users):
    def __init__(self, out: Path) -> None:
        super().__init__(out)
        self.build = self.home / "czmq-build"
        self.program = self.build / "czmq_selftest"
        if self.program.exists():
            return
        sources = out / "apt"  # build.sh made it: its own lists of source packages
        options = ["-oDir::Etc::sourcelist=/dev/null", f"-oDir::Etc::sourceparts={sources}/sources"]
        options += [f"-oDir::State::lists={sources}/lists", f"-oDir::Cache={sources}/cache", "-oAPT::Sandbox::User="]
        run(["apt-get", "-q", *options, "source", "--download-only", f"czmq={CZMQ}-1"], self.home, self.log)
        shutil.rmtree(self.home / "czmq", ignore_errors=True)
        run(["dpkg-source", "--no-copy", "-x", f"czmq_{CZMQ}-1.dsc", "czmq"], self.home, self.log)
        flags = ["-GNinja", "-DCMAKE_BUILD_TYPE=Release", "-DCZMQ_WITH_SYSTEMD=OFF", "-DENABLE_DRAFTS=OFF"]
        flags += [f"-DLIBZMQ_INCLUDE_DIRS={out}/include", f"-DLIBZMQ_LIBRARIES={out}/lib/libzmq.so.5"]
        flags += [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("libcurl", "libmicrohttpd", "lz4", "uuid")]
        run(["cmake", "-S", "czmq", "-B", str(self.build), *flags], self.home, self.log)
        run(["cmake", "--build", str(self.build), "-j2", "--target", "czmq_selftest"], self.home, self.log)

    def names(self) -> list[str]:
        said = subprocess.run([str(self.program), "--list"], capture_output=True, text=True, check=True).stdout
        return [line.split()[0] for line in said.splitlines() if line.startswith("    ")]

    def command(self, name: str, report: Path) -> list[str]:
        del report
        return [str(self.program), "--test", name]

    def outcomes(self, name: str, report: Path, status: int) -> dict[str, str]:
        del report
        return {name: "pass" if status == 0 else "fail"}

    def folder(self) -> Path:
        return self.home / "czmq"


def take(users: Users, name: str, turn: str, arguments: argparse.Namespace) -> tuple[dict[str, str], int]:
    """Outcomes, and how many endpoints were turned."""
    library = users.out / "lib/libzmq.so.5"
    report = users.home / f"{name}.xml"
    log = users.home / f"{name}.turned"
    own = f"users-{os.getpid()}-{name}"
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    if turn:
        environment |= {
            "LD_PRELOAD": f"{users.out / 'lib/turn.so'} {library}",
            "INCAST_ZMQ_TURN": turn,
            "INCAST_ZMQ_TURN_ID": own,
            "INCAST_ZMQ_TURN_HOST": "1",
            "INCAST_ZMQ_TURN_LOG": str(log),
            "RIO_FABRIC": f"shm:{own}",
            "RIO_DESTID": "1",
        }
    for path in (report, log):
        path.unlink(missing_ok=True)
    with (users.home / f"{name}.{turn or 'tcp'}.out").open("w") as output:
        process = subprocess.Popen(
            users.command(name, report),
            cwd=users.folder(),
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=arguments.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
    turned = len(re.findall(r"^turned ", log.read_text(), re.MULTILINE)) if log.exists() else 0
    return users.outcomes(name, report, status), turned


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("users", choices=["pyzmq", "czmq"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--turn", choices=["shm", "rio"], required=True)
    parser.add_argument("--known", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--timeout", type=float, default=300)
    arguments = parser.parse_args()
    try:
        users = {"pyzmq": Pyzmq, "czmq": Czmq}[arguments.users](arguments.out.resolve())
    except UsersError as failure:
        print(f"users_tests.py: {failure}", file=sys.stderr)
        return 2
    known = read_known(arguments.known)
    counts = dict.fromkeys(("pass", "fail", "skip"), 0)
    as_it_is = dict.fromkeys(("pass", "fail", "skip"), 0)
    turned_in, differences, unexpected, all_turned = 0, 0, 0, 0
    for name in arguments.only or users.names():
        base, _ = take(users, name, "", arguments)
        outcomes, turned = take(users, name, arguments.turn, arguments)
        all_turned += turned
        turned_in += turned > 0
        for test in {**base, **outcomes}:
            before, after = base.get(test, "fail"), outcomes.get(test, "fail")
            as_it_is[before] += 1
            counts[after] += 1
            if before == "pass" and after != "pass":
                differences += 1
                reason = known.get(test) or known.get(f"{arguments.turn} {test}", "")
                unexpected += not reason
                print(f"differs: {test}: {after} {reason and f'known: {reason}'}", flush=True)
            elif before == "fail":
                print(f"fails over tcp: {test}; over {arguments.turn}: {after}", flush=True)
        print(f"{name}: {len(outcomes)} tests, {turned} endpoints turned", flush=True)
    said = [
        f"over {way}: {', '.join(f'{n} {what}' for what, n in of.items())}"
        for way, of in (("tcp", as_it_is), (arguments.turn, counts))
    ]
    print(f"{arguments.users}: {'; '.join(said)}; {all_turned} endpoints turned in {turned_in} of the parts")
    print(f"{differences} differences, {unexpected} unexpected")
    return 1 if unexpected or all_turned == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
