"""Adds up JUnit files: one line per failure, then one line of totals. Exit status 1 if a test failed or none ran."""

import sys
from pathlib import Path
from xml.etree import ElementTree


def main(paths: list[str]) -> int:
    passed = failed = skipped = 0
    for path in map(Path, paths):
        if not path.is_file():
            print(f"FAILED  {path.stem}: left no results")
            failed += 1
            continue
        for case in ElementTree.parse(path).iter("testcase"):
            # ctest writes its own status attribute; pytest marks by child elements. A disabled test counts as skipped.
            if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
                failed += 1
                print(f"FAILED  {path.stem}: {case.get('classname')} {case.get('name')}")
            elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                skipped += 1
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
