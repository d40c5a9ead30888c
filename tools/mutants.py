"""Plants bugs in the protocol and the transports, one at a time, and says which tests see them.

The bugs are those of tools/mutants.toml. The tree is copied to a scratch folder with a build of its own; a bug is put
in, what it touches is built, and the fast tests are run until one fails: the mutant is killed. One that no test sees
has survived. Results are kept as JSON lines, so a run that was ended goes on where it stopped.

    python3 tools/mutants.py                          every mutant
    python3 tools/mutants.py --only NAME ...          some of them
    python3 tools/mutants.py --clauses 10 --seed 1    ten clauses drawn at random, and only the tests of their names
    python3 tools/mutants.py --report                 what is known so far
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from clauses import DEFINED_IN, read_clauses, read_texts

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "mutants.toml"
WORK = ROOT / "build" / "mutants"
BASELINE = 50  # the first so many are compared from change to change
TIME_LIMIT_S = 180  # of one program, on a busy machine
MEMORY_LIMIT_BYTES = 12 << 30


class Mutant(NamedTuple):
    name: str
    clause: str
    file: str
    text: str
    becomes: str
    unseen: str = ""  # why it may survive


class Suite(NamedTuple):
    """A program and the tests of it that matter here."""

    target: str
    arguments: tuple[str, ...] = ()
    folder: str = "test-bin"

    @property
    def label(self) -> str:
        return " ".join((self.target, *self.arguments))


def conformance(*transports: str) -> Suite:
    cases = ":".join(f"*/{name}_*" for name in transports)
    return Suite("conformance", (f"--gtest_filter={cases}-*_count_*:*_trace_*", "--gtest_fail_fast"))


def unit(target: str, *arguments: str) -> Suite:
    return Suite(target, ("--gtest_fail_fast", *arguments))


SEEDS = Suite("incast-adversary", ("--seeds", "0:200", "--threads", "1"), "bin")
LIARS = unit("adversary_test", "--gtest_filter=Adversary.*")
EVENT_BUILDING = (
    *(unit(name) for name in ("schedule_test", "claims_test", "event_manager_test", "readout_unit_test")),
    *(unit(name) for name in ("builder_unit_test", "source_credits_test", "protocol_test")),
    *(unit(name) for name in ("protocol_allocation_test", "two_worlds_test", "schedule_order_test")),
    SEEDS,
    LIARS,
)
# The longest beginning of a path that is here says which programs look at the file, the fastest first.
SUITES: dict[str, tuple[Suite, ...]] = {
    "src/protocol/": EVENT_BUILDING,
    "src/transport/": (unit("framed_test"), unit("tcp_test"), conformance("inproc", "shm", "tcp")),
    "src/transport/framed/": (unit("framed_test"), unit("tcp_test"), conformance("tcp", "udp")),
    "src/channel/": (unit("channel_test"),),
    "src/channel/hub/": (
        unit("channel_simulation"),
        unit("channel_conformance", "--gtest_filter=Hub.*:*/inproc_*:*/tcp_*"),
    ),
    "src/reliable/": (unit("reliable_test"), unit("softrio_engine_test")),
    "src/transport/inproc/": (unit("inproc_test"), conformance("inproc")),
    "src/transport/shm/": (unit("shm_test"), conformance("shm")),
    "src/transport/tcp/": (unit("tcp_test"), conformance("tcp")),
    "src/transport/udp/": (unit("udp_test"), conformance("udp")),
    "src/datagram/": (unit("udp_test"), unit("softrio_engine_test"), conformance("udp")),
    "src/transport/rio/": (unit("rio_test"), unit("rio_grants_test"), conformance("rio")),
    "src/transport/verbs/": (unit("verbs_test"), unit("verbs_exchange_test")),
    "src/softrio/": (unit("softrio_engine_test"), unit("rio_grants_test"), unit("softrio_test")),
    "src/wire/": (unit("wire_test"),),
    **{
        f"src/runtime/{room}/": (unit(f"{room}_test"),)
        for room in ("config", "filters", "launch", "machine", "monitor", "phases", "plan", "record", "report")
    },
    "src/runtime/sources/": (unit("sources_test"),),
    "src/runtime/sinks/": (unit("sinks_test"),),
    "src/sim/": (unit("sim_test"), conformance("sim"), unit("two_worlds_test"), SEEDS),
}


def suites_of(file: str) -> tuple[Suite, ...]:
    fitting = [start for start in SUITES if file.startswith(start)]
    if not fitting:
        raise SystemExit(f"{file}: no tests are known for it; tools/mutants.py lists them by folder")
    return SUITES[max(fitting, key=len)]


def read_list(path: Path = LIST) -> list[Mutant]:
    return [Mutant(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]]


def mutated(text: str, mutant: Mutant) -> str:
    count = text.count(mutant.text)
    if count != 1:
        raise ValueError(f"{mutant.name}: its text occurs {count} times in {mutant.file}, it must occur once")
    return text.replace(mutant.text, mutant.becomes)


# --- tests named after clauses


class NamedTest(NamedTuple):
    file: str
    word: str  # what picks it out of its program: a gtest filter, or a name for pytest


def tests_of(clause: str, root: Path = ROOT) -> list[NamedTest]:
    """Tests whose names bear the clause: EB-C1 is EB_C1_ in C++, and eb_c1_ in Python."""
    token = re.escape(clause.replace("-", "_")) + "_"
    cpp = re.compile(rf"^TEST(?:_[PF])?\((\w+), *(\w*{token}\w*)\)|^TEST(?:_[PF])?\((\w*{token}\w*), *(\w+)\)", re.M)
    python = re.compile(rf"^def (test_\w*{token.lower()}\w*)\(", re.M)
    found = []
    for path in sorted([*root.glob("src/**/*_test.cpp"), *root.glob("tests/*/*_test.cpp")]):
        for match in cpp.finditer(path.read_text(encoding="utf-8")):
            suite, name = (match[1], match[2]) if match[2] else (match[3], match[4])
            found.append(NamedTest(str(path.relative_to(root)), f"*{suite}.{name}:*{suite}.{name}/*"))
    for folder in ("tests/process", "python", "tools"):
        for path in sorted((root / folder).rglob("*test*.py")):
            found.extend(
                NamedTest(str(path.relative_to(root)), match[1])
                for match in python.finditer(path.read_text(encoding="utf-8"))
            )
    return found


def program_of(file: str, root: Path = ROOT) -> str:
    """The test program that a source belongs to."""
    path = root / file
    for folder in path.parents:
        lists = folder / "CMakeLists.txt"
        if lists.is_file():
            name = str(path.relative_to(folder))
            for match in re.finditer(r"incast_test\(\s*(\w+)\s+SOURCES\s+([^)]*)\)", lists.read_text()):
                if name in re.split(r"\s+", match[2].split("DEPENDS")[0]):
                    return match[1]
        if folder == root:
            break
    raise SystemExit(f"{file}: no incast_test() has it")


def named_suites(clause: str, mutant: Mutant) -> list[Suite]:
    """What is run for a clause: its own tests, and of the conformance suite those of the mutant's transport."""
    filters: dict[str, list[str]] = {}
    suites = []
    for test in tests_of(clause):
        if test.file.endswith(".py"):
            suites.append(Suite("incast-node", ("-m", "pytest", "-q", "-x", test.file, "-k", test.word), "pytest"))
            continue
        words = [test.word]
        target = program_of(test.file)
        folder = re.match(r"src/(?:transport/)?(\w+)/", mutant.file)
        if target == "conformance" and folder and folder[1] in ("inproc", "shm", "tcp", "rio", "udp", "sim"):
            words = [test.word.split(":")[1].removesuffix("*") + folder[1] + "_*"]
        filters.setdefault(target, []).extend(words)
    return [*(unit(name, f"--gtest_filter={':'.join(words)}") for name, words in filters.items()), *suites]


# --- the scratch tree


def tracked() -> list[str]:
    listing = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True, text=True)
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


class Scratch:
    def __init__(self, work: Path, jobs: int) -> None:
        self.tree = work / "tree"
        self.build = self.tree / "build" / "release"
        self.jobs = jobs
        self.log = work / "build.log"

    def fill(self) -> None:
        """Copies what differs, so that only that is built again; what is there and not in the tree goes away."""
        names = set(tracked())
        for name in names:
            source, copy = ROOT / name, self.tree / name
            content = source.read_bytes()
            if not copy.is_file() or copy.read_bytes() != content:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)
                shutil.copymode(source, copy)
        for path in sorted(self.tree.rglob("*")):
            there = path.relative_to(self.tree)
            if path.is_file() and there.parts[0] != "build" and str(there) not in names:
                path.unlink()

    def configure(self) -> None:
        if (self.build / "build.ninja").is_file():
            return
        command = ["cmake", "--preset", "release", "-DINCAST_TESTS=ON"]
        if shutil.which("ccache"):
            command.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        subprocess.run(command, cwd=self.tree, check=True, stdout=subprocess.DEVNULL)

    def make(self, targets: Sequence[str]) -> bool:
        command = ["cmake", "--build", "build/release", "-j", str(self.jobs), "--target", *targets]
        with self.log.open("w") as log:
            return subprocess.run(command, cwd=self.tree, check=False, stdout=log, stderr=log).returncode == 0

    def run(self, suite: Suite) -> str:
        """How it failed; empty if it passed."""
        command = [str(self.build / suite.folder / suite.target), *suite.arguments]
        if suite.folder == "pytest":
            command = [sys.executable, *suite.arguments]
        command = ["prlimit", f"--as={MEMORY_LIMIT_BYTES}", *command]
        environment = {**os.environ, "INCAST_BIN_DIR": str(self.build / "bin")}
        output = self.log.with_name("test.log")
        with output.open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=self.tree,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
            try:
                process.wait(TIME_LIMIT_S)
            except subprocess.TimeoutExpired:
                return f"no end within {TIME_LIMIT_S} s"
            finally:
                end_session(process)
        return "" if process.returncode == 0 else first_failure(output.read_text(errors="replace"), process.returncode)


def end_session(process: subprocess.Popen[bytes]) -> None:
    """The children of a conformance test, too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def first_failure(output: str, status: int) -> str:
    failed = re.search(r"^\[  FAILED  \] ([\w/.]+)|^FAILED (\S+)", output, re.M)
    if failed:
        return failed[1] or failed[2]
    violation = re.search(r"^seed \d+: at .*", output, re.M)
    if violation:
        return violation[0][:160]
    running = re.findall(r"^\[ RUN      \] (\S+)", output, re.M)
    how = f"ended by signal {-status}" if status < 0 else f"status {status}"
    return f"{how} in {running[-1]}" if running else how


# --- results


class Result(NamedTuple):
    name: str
    clause: str
    state: str  # killed, survived, or does not build
    by: str
    seconds: float


def read_results(path: Path) -> dict[str, Result]:
    if not path.is_file():
        return {}
    results = [Result(**json.loads(line)) for line in path.read_text().splitlines() if line]
    return {result.name: result for result in results}


def try_one(scratch: Scratch, mutant: Mutant, suites: Sequence[Suite]) -> Result:
    begin = time.monotonic()
    file = scratch.tree / mutant.file
    healthy = file.read_text(encoding="utf-8")
    state, by = "survived", ""
    file.write_text(mutated(healthy, mutant), encoding="utf-8")
    try:
        if not scratch.make(sorted({suite.target for suite in suites})):
            state, by = "does not build", str(scratch.log)
        for suite in suites if state == "survived" else ():
            if failure := scratch.run(suite):
                state, by = "killed", f"{suite.target}: {failure}"
                break
    finally:
        file.write_text(healthy, encoding="utf-8")
    return Result(mutant.name, mutant.clause, state, by, round(time.monotonic() - begin, 1))


def expect_sound(scratch: Scratch, suites: Sequence[Suite]) -> None:
    """What fails without a mutant says nothing about one."""
    if suites and not scratch.make(sorted({suite.target for suite in suites})):
        raise SystemExit(f"the tree does not build: {scratch.log}")
    for suite in suites:
        if failure := scratch.run(suite):
            raise SystemExit(f"{suite.label} fails without a mutant: {failure}")


def drawn(mutants: Sequence[Mutant], many: int, seed: int) -> Iterator[tuple[str, list[Mutant]]]:
    """Clauses that are built, at random, each with its mutants."""
    clauses, _ = read_clauses(read_texts(ROOT, DEFINED_IN.values()))
    built = sorted(name for name, clause in clauses.items() if not clause.planned)
    for clause in random.Random(seed).sample(built, min(many, len(built))):
        yield clause, [mutant for mutant in mutants if mutant.clause == clause]


def report(results: Sequence[Result], unseen: dict[str, str]) -> None:
    for result in results:
        remark = result.by or unseen.get(result.name, "")
        print(f"{result.state:9} {result.seconds:6.1f} s  {result.clause:6} {result.name:36} {remark}")
    killed = sum(result.state == "killed" for result in results)
    spared = sum(result.state == "survived" and result.name in unseen for result in results)
    print(f"{killed} of {len(results)} killed" + (f", {spared} unseen" if spared else ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these mutants")
    parser.add_argument("--baseline", action="store_true", help=f"only the first {BASELINE}")
    parser.add_argument("--clauses", type=int, metavar="N", help="so many clauses at random, and their own tests alone")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--work", type=Path, default=WORK, metavar="FOLDER", help="scratch folder")
    parser.add_argument("--results", type=Path, metavar="FILE", help="JSON lines (default: FOLDER/results.jsonl)")
    parser.add_argument("--again", action="store_true", help="also those of which there is a result")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="of the build")
    options = parser.parse_args()

    mutants = read_list()
    if unknown := set(options.only or ()) - {mutant.name for mutant in mutants}:
        raise SystemExit(f"no such mutants: {', '.join(sorted(unknown))}")
    options.work.mkdir(parents=True, exist_ok=True)
    by_clause = options.clauses is not None
    kept = options.results or options.work / ("clauses.jsonl" if by_clause else "results.jsonl")
    known = read_results(kept)
    wanted: list[tuple[Mutant, Sequence[Suite]]] = []
    if by_clause:
        for clause, theirs in drawn(mutants, options.clauses, options.seed):
            tests = ", ".join(sorted({test.file for test in tests_of(clause)}))
            print(f"{clause}: {len(theirs)} mutants; tests in {tests or 'nothing'}")
            wanted += [(mutant, named_suites(clause, mutant)) for mutant in theirs]
    else:
        some = mutants[:BASELINE] if options.baseline else mutants
        wanted = [(each, suites_of(each.file)) for each in some if not options.only or each.name in options.only]
    if not options.report:
        scratch = Scratch(options.work.resolve(), options.jobs)
        scratch.fill()
        scratch.configure()
        left = [(mutant, suites) for mutant, suites in wanted if options.again or mutant.name not in known]
        sound: set[Suite] = set()
        with kept.open("a") as file:
            for mutant, suites in left:
                expect_sound(scratch, [suite for suite in suites if suite not in sound])
                sound.update(suites)
                result = try_one(scratch, mutant, suites)
                known[mutant.name] = result
                file.write(json.dumps(result._asdict()) + "\n")
                file.flush()
                print(f"{result.state}: {result.name} ({result.clause}, {result.seconds} s) {result.by}", flush=True)
    results = [known[mutant.name] for mutant, _ in wanted if mutant.name in known]
    unseen = {mutant.name: mutant.unseen for mutant in mutants if mutant.unseen}
    report(results, unseen)
    seen = all(result.state == "killed" or result.name in unseen for result in results)
    return 0 if len(results) == len(wanted) and seen else 1


if __name__ == "__main__":
    sys.exit(main())
