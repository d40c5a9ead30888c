"""Runs the cases that tools/cases.toml lists and says for each what was expected and what came.

usage: tools/run_cases.sh FOLDER [NAME...]     needs root for some (namespaces, small disks); the tree must be built
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFUSED_EVERYWHERE = [
    r"Traceback \(most recent call last\)",
    r"terminate called",
    r"ERROR: \w+Sanitizer",
    r"\bAborted\b",
]
DEADLINE_S = 240
# Cases stop and look for processes by name, and mount small disks: no others must be there.
ALONE = ["unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]


def in_bash(command: str) -> list[str]:
    """On a host of its own where that can be had: without root some cases show less."""
    try:
        alone = subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        alone = False
    return [*ALONE, "bash", "-c", f"ip link set lo up\n{command}"] if alone else ["bash", "-c", command]


def run(command: str, folder: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="incast-cases-") as scratch:
        (Path(scratch) / "incast-cases" / "out" / "nb").mkdir(parents=True)
        (Path(scratch) / "incast-cases" / "out" / "nb").chmod(0o777)
        Path(scratch).chmod(0o755)
        environment = os.environ | {"INCAST_ROOT": str(ROOT), "CASES": str(folder), "TMPDIR": scratch, "COLUMNS": "200"}
        try:
            done = subprocess.run(
                in_bash(command),
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=DEADLINE_S,
                check=False,
            )
            return done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as expired:
            return (expired.stdout or b"").decode(errors="replace") + f"\nno end within {DEADLINE_S} s"


def differences(case: dict[str, list[str]], output: str) -> list[str]:
    missing = [
        f"expected: {pattern}" for pattern in case.get("expect", []) if not re.search(pattern, output, re.MULTILINE)
    ]
    found = [re.search(pattern, output, re.MULTILINE) for pattern in case.get("refuse", []) + REFUSED_EVERYWHERE]
    return missing + [f"refused: {match.group(0)}" for match in found if match]


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    cases = tomllib.loads((ROOT / "tools" / "cases.toml").read_text())
    chosen = arguments[1:] or list(cases)
    for name in chosen:
        if name not in cases:
            print(f"no such case: {name}; the cases are: {' '.join(cases)}", file=sys.stderr)
            return 2
    wrong = 0
    for name in chosen:
        output = run(cases[name]["run"], folder)
        problems = differences(cases[name], output)
        wrong += bool(problems)
        print(f"{name}: {'as expected' if not problems else 'NOT as expected'}", flush=True)
        for problem in problems:
            print(f"    {problem}")
        if problems:
            print(
                "    it gave:\n" + "\n".join("      | " + line[:200] for line in output.splitlines()[:60]), flush=True
            )
    print(f"{len(chosen) - wrong} of {len(chosen)} cases as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
