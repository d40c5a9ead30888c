"""The clauses of docs/protocol.md (EB-...), docs/transport-contract.md (TC-...) and docs/channel.md (CH-...): defined,
cited, tested.

A clause is cited by its whole name. The name of a test bears it as EB_C1_ (C++) or eb_c1_ (Python). One that is not
built is marked "(planned)" behind its name.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

DEFINED_IN = {"EB": "docs/protocol.md", "TC": "docs/transport-contract.md", "CH": "docs/channel.md"}
DEFINITION = re.compile(r"- \*\*((EB|TC|CH)-[A-Z]\d+)\*\*( \(planned\))?")
CITED = re.compile(r"\b(?:EB|TC|CH)-[A-Z]\d+\b")
NAMED = re.compile(r"(?<![A-Za-z])(EB|TC|CH)_([A-Z]\d+)_|(?<![A-Za-z])(eb|tc|ch)_([a-z]\d+)_")
TEST = re.compile(r"\s*(?:TEST(?:_[PF])?\(|def test_)")
CODE = (".h", ".cpp", ".c", ".py")
# What stands outside the tree. Written so that this file does not match.
FOREIGN = re.compile(r"(?<![\w/])PROTO[C]OL\b|\b[Ss]eeds? 0{2}\d\b|TheIss[u]e")
# Where words like those of clauses mean something else: papers, rules of a linter. And the tests of these very rules.
OTHER_WORDS = re.compile(
    r"^(fabrics|scans|bench|python/incast/(reproduce|scan|figures)|python/tests/lab|tools/wireshark)/|^pyproject\.toml$"
    r"|^docs/(fabrics|reproduction|rapidio|rapidio-comparisons|reports|physics|figures)\.md$"
)
EXAMPLES = ("tools/clauses_test.py", "tools/mutants_test.py")


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    hint: str


class Clause(NamedTuple):
    path: str
    line: int
    planned: bool


def read_clauses(texts: dict[str, str]) -> tuple[dict[str, Clause], list[Finding]]:
    clauses: dict[str, Clause] = {}
    findings = []
    for document, path in DEFINED_IN.items():
        for number, line in enumerate(texts.get(path, "").split("\n"), start=1):
            if not (match := DEFINITION.match(line)):
                continue
            if match[1] in clauses or match[2] != document:
                hint = f"{match[1]} is defined twice, or in the wrong document"
                findings.append(Finding(path, number, "clause", hint))
            clauses.setdefault(match[1], Clause(path, number, match[3] is not None))
    return clauses, findings


def bare(clauses: Iterable[str]) -> re.Pattern[str]:
    """What stands behind EB-, TC- or CH-, as a word of its own."""
    words = "|".join(sorted({name.partition("-")[2] for name in clauses}))
    return re.compile(rf"(?<![\w\[.&$-])(?:{words})(?!\w|[\](]|\.\w)") if words else re.compile(r"(?!)")


def named_in(line: str) -> list[str]:
    return [f"{match[1] or match[3]}-{match[2] or match[4]}".upper() for match in NAMED.finditer(line)]


def check_line(path: str, line: str, clauses: dict[str, Clause], alone: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Rule and hint."""
    named = named_in(line) if path.endswith((*CODE, ".txt")) else []
    for name in CITED.findall(line) + named:
        if name not in clauses:
            yield "clause", f"there is no clause {name} in {DEFINED_IN[name[:2]]}"
    if FOREIGN.search(line):
        yield "bare-clause", "say where in the project's own documents it stands: EB-..., TC-..., [S1]"
    elif not OTHER_WORDS.search(path) and (match := alone.search(line)):
        yield "bare-clause", f"{match[0]} of which document? EB-{match[0]} or TC-{match[0]}"


def check_clauses(texts: dict[str, str]) -> Iterator[Finding]:
    """`texts`: the text files of the tree, by path."""
    clauses, findings = read_clauses(texts)
    yield from findings
    alone = bare(clauses)
    tested = set()
    for path, text in sorted(texts.items()):
        if path in EXAMPLES:
            continue
        for number, line in enumerate(text.split("\n"), start=1):
            if path.endswith(CODE) and TEST.match(line):
                tested.update(named_in(line))
            for rule, hint in check_line(path, line, clauses, alone):
                yield Finding(path, number, rule, hint)
    for name, clause in clauses.items():
        if clause.planned and name in tested:
            yield Finding(
                clause.path, clause.line, "clause", f"{name} is said to be planned, but a test bears its name"
            )
        elif not clause.planned and name not in tested:
            yield Finding(clause.path, clause.line, "clause", f"{name} is built, but no test bears its name")


def read_texts(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Those that can be read; what was said of an earlier version stays as it is."""
    texts = {}
    for path in paths:
        file = root / path
        if file.is_symlink() or not file.is_file() or "/corpus/" in path or file.name in ("LICENSE", "CHANGELOG.md"):
            continue
        try:
            texts[path] = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # another rule says so
    return texts
