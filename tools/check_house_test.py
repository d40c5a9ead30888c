"""Every rule of check_house.py must see a planted violation, and must stay quiet on clean text."""

from pathlib import Path

import pytest
from check_house import LINE_RULES, MAX_BYTES, MAX_LINES, check_file, check_text

# One violation per rule. Assembled, so that the checker does not find them here.
PLANTED = {
    "sleep": ("src/base/a_test.cpp", "std::this_thread::sle" + "ep_for(1s);\n"),
    "later": ("src/base/a.cpp", "// TO" + "DO: more\n"),
    "machine-path": ("src/base/a.cpp", 'open("/ho' + 'me/me/x");\n'),
    "registry": ("tools/a.sh", "curl https://py" + "pi.org/simple\n"),
    "include-up": ("src/base/a.cpp", '#include "' + '../wire/mfp.h"\n'),
    "public-include": ("include/incast/a.h", '#pragma once\n#include "base' + '/prng.h"\n'),
    "transport-name": ("src/runtime/a.cpp", "if (config.transport =" + '= "tcp") {}\n'),
    "tab": ("src/base/a.cpp", "\tint a;\n"),
    "trailing-space": ("docs/a.md", "words" + " \n"),
    "fixed-port": ("tests/process/a_test.cpp", 'connect("127.0.0.1' + ':8080");\n'),
    "final-newline": ("src/base/a.cpp", "int a;"),
    "long-file": ("src/base/a.cpp", "int a;\n" * (MAX_LINES + 1)),
    "guard": ("src/base/a.h", "int a;\n"),
    "long-line": ("src/base/a.cpp", "/" * 121 + "\n"),
}


def rules_broken(path: str, text: str) -> set[str]:
    return {finding.rule for finding in check_text(path, text)}


@pytest.mark.parametrize("rule", sorted(PLANTED))
def test_planted_violation_is_found(rule: str) -> None:
    assert rules_broken(*PLANTED[rule]) == {rule}


def test_every_line_rule_has_a_planted_violation() -> None:
    assert {rule.name for rule in LINE_RULES} <= set(PLANTED)


def test_clean_text_passes() -> None:
    clean = '#pragma once\n#include <cstdint>\n\n#include "base/units.h"\n// A comment.\n'
    assert rules_broken("src/wire/mfp.h", clean) == set()
    assert rules_broken("include/incast/a.h", "#pragma once\n#include <span>\n#include <incast/result.h>\n") == set()


def test_exemption_needs_the_rule_and_a_reason() -> None:
    path, text = PLANTED["sleep"]
    line = text.rstrip("\n")
    assert rules_broken(path, f"{line}  // house: allow sleep: the pause is what is tested\n") == set()
    assert rules_broken(path, f"{line}  // house: allow sleep:\n") == {"sleep"}
    assert rules_broken(path, f"{line}  // house: allow tab: not this one\n") == {"sleep"}


def test_large_and_undecodable_files(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\0" * (MAX_BYTES + 1))
    (tmp_path / "a.md").write_bytes(b"\xff\xfe\n")
    assert [finding.rule for finding in check_file(tmp_path, "data.bin")] == ["large-file"]
    assert [finding.rule for finding in check_file(tmp_path, "a.md")] == ["encoding"]
