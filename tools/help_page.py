"""Makes the manual page of a program of the engine from what it says to --help.

usage: help_page.py PROGRAM >PAGE
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SECTION = 1


def page(name: str, said: str) -> str:
    """The source, for man(7). `said`: a line, the usage, then sections of names and texts."""
    first, *lines = said.strip().split("\n")
    title = f'.TH {_plain(name.upper())} {SECTION} "" "Incast" "Incast"'
    head = [title, ".SH NAME", f"{_plain(name)} \\- {_plain(first.rstrip('.'))}", ".SH SYNOPSIS"]
    return "\n".join([*head, *_body(lines)]) + "\n"


def _body(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if usage := re.fullmatch(r"Usage: (.*)", line):
            yield f".B {_plain(usage[1])}"
        elif section := re.fullmatch(r"(\w[\w ]*):", line):
            yield f".SH {_plain(section[1].upper())}"
        elif further := re.fullmatch(r"\s{20,}(\S.*)", line):
            yield _plain(further[1])
        elif entry := re.fullmatch(r"\s{1,4}(\S.*?)(?:\s{2,}(\S.*))?", line):
            yield from (".TP", rf"\fB{_plain(entry[1])}\fR", *([_plain(entry[2])] if entry[2] else []))


def _plain(text: str) -> str:
    """Letters that stand for themselves."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main(program: str) -> None:
    said = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    sys.stdout.write(page(Path(program).name, said))


if __name__ == "__main__":
    main(sys.argv[1])
