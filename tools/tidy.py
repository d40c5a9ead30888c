"""Runs clang-tidy on the translation units of build/release that a change touches, or on all of them.

usage: tidy.py (--all | BASE)     BASE: a commit; everything that differs from it counts as changed
A changed header stands for the units of the tree that include it by name; the units that changed themselves come first.
With a BASE, no unit is begun after INCAST_TIDY_SECONDS (default 60), for a change of everything would take half an
hour; what was left out is named. Exit status 1 on any finding.
"""

import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
# The database holds gcc's command lines; clang need not know every warning that gcc knows.
# On tests: the path-sensitive checks take half a minute on the macros, and what they look for the test run shows; and a
# test need not be fast, and its numbers are small.
TEST_CHECKS = "--checks=" + ",".join(
    (
        "-clang-analyzer-*",
        "-bugprone-implicit-widening-of-multiplication-result",
        "-bugprone-unchecked-optional-access",
        "-concurrency-mt-unsafe",
        "-performance-inefficient-*",
    )
)
TEST_FOLDERS = {"bench", "tests"}
COMMANDS = BUILD / "tidy"
CLANG_TIDY = ["clang-tidy-19", "--quiet", "-p", str(COMMANDS), "--extra-arg=-Wno-unknown-warning-option"]


def without_precompiled_headers(command: str) -> list[str]:
    """They are gcc's; and without, a source that does not include what it uses is found."""
    words = shlex.split(command)
    for at, word in enumerate(words[:-1]):
        if word == "-include" and words[at + 1].endswith("/cmake_pch.hxx"):
            del words[at : at + 2]
            break
    return [word for word in words if word != "-Winvalid-pch"]


def sources_of(file: Path) -> list[Path]:
    """The source itself; of one that CMake made of several (unity builds), those."""
    if BUILD not in file.parents or file.parent.name != "Unity":
        return [file]
    return [Path(name) for name in re.findall(r'#include "(.+)"', file.read_text())]


def units() -> list[Path]:
    entries = []
    for made in json.loads((BUILD / "compile_commands.json").read_text()):
        words = without_precompiled_headers(made["command"])
        for source in sources_of(Path(made["file"])):
            arguments = [str(source) if word == made["file"] else word for word in words]
            entries.append({"directory": made["directory"], "file": str(source), "arguments": arguments})
    COMMANDS.mkdir(exist_ok=True)
    (COMMANDS / "compile_commands.json").write_text(json.dumps(entries))
    files = {Path(entry["file"]).resolve() for entry in entries}
    return sorted(file for file in files if BUILD not in file.parents)


def changed_since(base: str) -> set[Path]:
    command = ["git", "-C", str(ROOT), "diff", "--name-only", "--diff-filter=d", base]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return {ROOT / name for name in names}


def touched(base: str) -> list[Path]:
    changed = changed_since(base)
    if ROOT / ".clang-tidy" in changed:
        return units()
    headers = [file for file in changed if file.suffix == ".h"]
    names = {str(header.relative_to(ROOT / header.relative_to(ROOT).parts[0])) for header in headers}
    selected = []
    for unit in units():
        included = set(re.findall(r'#\s*include\s*["<]([^">]+)[">]', unit.read_text()))
        if unit in changed or included & names:
            selected.append(unit)
    return sorted(selected, key=lambda unit: unit not in changed)


def tidy(unit: Path, deadline: float) -> tuple[Path, str | None, float]:
    """The findings, empty when there are none; None when there was no time."""
    start = time.monotonic()
    if start > deadline:
        return unit, None, 0.0
    is_test = unit.stem.endswith("_test") or unit.relative_to(ROOT).parts[0] in TEST_FOLDERS
    command = [*CLANG_TIDY, *([TEST_CHECKS] if is_test else []), str(unit)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    failed = result.returncode != 0
    return unit, (result.stdout + result.stderr) if failed else "", time.monotonic() - start


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    everything = sys.argv[1] == "--all"
    selected = units() if everything else touched(sys.argv[1])
    seconds = math.inf if everything else float(os.environ.get("INCAST_TIDY_SECONDS", "60"))
    deadline = time.monotonic() + seconds
    failures = left_out = 0
    with ThreadPoolExecutor(int(os.environ.get("INCAST_JOBS", os.cpu_count() or 1))) as pool:
        for unit, output, took in pool.map(lambda unit: tidy(unit, deadline), selected):
            word = "no time" if output is None else "FAILED" if output else "ok"
            print(f"{word:7} {unit.relative_to(ROOT)} ({took:.1f} s)", flush=True)
            left_out += output is None
            if output:
                failures += 1
                print(output)
    print(f"clang-tidy: {len(selected) - left_out} of {len(selected)} units looked at, {failures} with findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
