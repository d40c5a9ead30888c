"""Adds up the JUnit files of a folder: one line per failure, then one line of totals.

usage: summarise_tests.py DIR     exit status 1 if a test failed or none ran
A test program leaves NAME.xml with its cases; ctest leaves ctest.xml with a line per program, which counts where the
program left no file (it has no cases, or crashed) or failed without a failed case (it leaked, or crashed at its end).
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def outcome(case: ElementTree.Element) -> str:
    # googletest and pytest mark by child elements, ctest by an attribute. A disabled test counts as skipped.
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def read(path: Path) -> list[ElementTree.Element]:
    try:
        return list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def main(folder: Path) -> int:
    total: Counter[str] = Counter()
    failed_in: set[str] = set()
    files = sorted(set(folder.glob("*.xml")) - {folder / "ctest.xml"} | {folder / "pytest.xml"})
    for path in files:
        cases = read(path)
        if not cases and path.stem == "pytest":
            print("FAILED  pytest: left no results")
            total["failed"] += 1
        for case in cases:
            result = outcome(case)
            total[result] += 1
            if result == "failed":
                failed_in.add(path.stem)
                print(f"FAILED  {path.stem}: {case.get('classname')}.{case.get('name')}")
    for program in read(folder / "ctest.xml"):
        name, result = program.get("name", ""), outcome(program)
        has_cases = folder / f"{name}.xml" in files
        if not has_cases or (result == "failed" and name not in failed_in):
            total[result] += 1
            if result == "failed":
                print(f"FAILED  {name} as a whole")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
