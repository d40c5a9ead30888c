"""Checks the rules of the house that no compiler knows (STYLE.md). Prints FILE:LINE: rule: hint; exit status 1 if any.

A line that must break a rule says so itself, with the reason: `house: allow RULE: reason`.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from architecture import check_architecture
from clauses import Finding, check_clauses, read_texts
from english import check_english
from rooms import check_rooms

CODE = {".h", ".cpp", ".py", ".sh", ".cmake", ".c"}
TEXT = CODE | {".md", ".toml", ".json", ".yml", ".yaml", ".svg", ".txt", ".tsv", ""}
MAX_LINES = 600
MAX_COLUMNS = 120
MAX_BYTES = 1 << 20


class LineRule(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    applies: str  # a pattern for the path
    hint: str


TESTS = r"(^|/)(tests?/|test_[^/]*\.py$)|_test\.(cpp|py)$"
SOURCES = r"\.(h|cpp|c|py|sh|cmake)$"

# The patterns are written so that this file does not match them.
LINE_RULES = [
    LineRule(
        "sleep",
        re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|time\.sleep|asyncio\.sleep)\b|\bsleep\s*\(\s*\d"),
        TESTS,
        "a test waits for a condition with a deadline, never for a fixed time",
    ),
    LineRule(
        "later",
        re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b"),
        ".",
        "finish it, or open an issue; the tree holds no notes to self",
    ),
    LineRule(
        "machine-path",
        re.compile(r"(?<![\w.$}])/(?:work|home|root|Users|tmp)/\w"),
        r"^(?!docs/|README).*",
        "a path of one machine; derive it, or ask for a temporary folder",
    ),
    LineRule(
        "registry",
        re.compile(
            r"(pypi|pythonhosted|npmjs|crates|rubygems|deb\.debian|security\.debian|archive\.ubuntu|ports\.ubuntu|"
            r"snapshot\.debian|conda\.anaconda|registry-1\.docker|ghcr)\.(org|io|com)\b|\bproxy\.golang\.org\b"
        ),
        ".",
        "the host's own configuration says where packages come from",
    ),
    LineRule(
        "include-up",
        re.compile(r'#\s*include\s*"(?:\.\.?/|[^/"]*")'),
        r"^(src|include|bench)/.*\.(h|cpp)$",  # a test program's own headers stand beside it
        'headers are included from their folder\'s root: #include "base/prng.h"',
    ),
    LineRule(
        "public-include",
        re.compile(r'#\s*include\s*(?:"|<(?!incast/)[^>]*/)'),
        r"^include/.*\.h$",
        "a public header includes the standard library and <incast/...> only",
    ),
    LineRule(
        "transport-name",
        re.compile(
            r'[!=]=\s*"(inproc|shm|tcp|rio|sim)"|"(inproc|shm|tcp|rio|sim)"\s*[!=]='
            r'|"transport\.name": "(inproc|shm|tcp|rio|sim)"'
        ),
        r"^(src/(?!softrio/|.*_test\.cpp$)|python/incast/|tests/)",
        "what differs between transports is data: transport::Traits, Capabilities, or what the result says",
    ),
    # The kernel's own style indents with tabs.
    LineRule(
        "tab", re.compile(r"\t"), r"^(?!kernel/.*\.[ch]$).*\.(h|cpp|c|py|sh|cmake|md|toml|json)$", "indent with spaces"
    ),
    LineRule("trailing-space", re.compile(r"[ \t]+$"), r".*", "remove the white space at the end of the line"),
    LineRule(
        "fixed-port",
        re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):[1-9]\d{2,4}\b"),
        TESTS,
        "bind to port 0 and ask which one it became",
    ),
]


def check_text(path: str, text: str) -> Iterator[Finding]:
    suffix = Path(path).suffix
    lines = text.split("\n")
    if text and not text.endswith("\n"):
        yield Finding(path, len(lines), "final-newline", "end the file with a line break")
    if suffix in CODE and len(lines) - 1 > MAX_LINES:
        hint = f"{len(lines) - 1} lines; at most {MAX_LINES}: split it by reason to change"
        yield Finding(path, len(lines) - 1, "long-file", hint)
    if suffix == ".h" and "#pragma once" not in lines and not path.startswith("kernel/"):
        yield Finding(path, 1, "guard", "a header starts with #pragma once")
    rules = [rule for rule in LINE_RULES if re.search(rule.applies, path)]
    for number, line in enumerate(lines, start=1):
        allowed = re.search(r"house: allow ([\w-]+): \S", line)
        for rule in rules:
            if rule.pattern.search(line) and not (allowed and allowed[1] == rule.name):
                yield Finding(path, number, rule.name, rule.hint)
        if re.search(SOURCES, path) and len(line) > MAX_COLUMNS:
            yield Finding(path, number, "long-line", f"{len(line)} columns; at most {MAX_COLUMNS}")


def check_file(root: Path, path: str) -> Iterator[Finding]:
    file = root / path
    if file.is_symlink() or not file.is_file():
        return
    if file.stat().st_size > MAX_BYTES:
        yield Finding(path, 1, "large-file", f"more than {MAX_BYTES} bytes; generate it, or keep it elsewhere")
    if Path(path).name == "LICENSE" or "/corpus/" in path or Path(path).suffix not in TEXT:
        return
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        yield Finding(path, 1, "encoding", "text files are UTF-8")
        return
    yield from check_text(path, text)


def tracked_files(root: Path) -> list[str]:
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(set(listing.split("\0")) - {""})


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    paths = tracked_files(root)
    findings = [finding for path in paths for finding in check_file(root, path)]
    texts = read_texts(root, [path for path in paths if Path(path).suffix in TEXT])
    findings += [*check_clauses(texts), *check_rooms(texts), *check_architecture(root)]
    findings += [finding for path, text in texts.items() for finding in check_english(path, text)]
    for finding in findings:
        print(f"{finding.path}:{finding.line}: {finding.rule}: {finding.hint}")
    print(f"{len(paths)} files checked, {len(findings)} findings")
    return 1 if findings or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
