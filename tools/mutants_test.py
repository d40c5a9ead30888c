"""The list of mutants does not rot: each fits the tree as it is, and the tool sees what it must."""

import re
from pathlib import Path

import pytest
from mutants import BASELINE, ROOT, Mutant, first_failure, mutated, program_of, read_list, suites_of

MUTANTS = read_list()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_tree(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutated(text, mutant) != text
    assert suites_of(mutant.file)


def test_the_list_is_sound() -> None:
    assert len(MUTANTS) >= BASELINE
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert re.fullmatch(r"[a-z0-9-]+", mutant.name)
        assert re.fullmatch(r"(EB|TC|CH)-[A-Z]\d+", mutant.clause)


def test_every_program_is_one_of_the_tree() -> None:
    lists = "".join(path.read_text() for path in (ROOT / "src").rglob("CMakeLists.txt"))
    lists += "".join(path.read_text() for path in (ROOT / "tests").glob("*/CMakeLists.txt"))
    for mutant in MUTANTS:
        for suite in suites_of(mutant.file):
            assert re.search(rf"incast_(test|executable)\(\s*{re.escape(suite.target)}\s", lists), suite


def test_a_text_that_does_not_occur_once_is_an_error() -> None:
    mutant = Mutant("m", "EB-C1", "a.cpp", "a < b", "a <= b")
    assert mutated("if (a < b) {}", mutant) == "if (a <= b) {}"
    for text in ("if (a > b) {}", "if (a < b || a < b) {}"):
        with pytest.raises(ValueError, match=r"occurs [02] times in a\.cpp"):
            mutated(text, mutant)


def test_what_failed_first_is_named() -> None:
    gtest = "[ RUN      ] A.B\nfailure\n[  FAILED  ] A.B (3 ms)\n[  FAILED  ] A.C (3 ms)\n"
    assert first_failure(gtest, 1) == "A.B"
    assert first_failure("[ RUN      ] A.B\n", -6) == "ended by signal 6 in A.B"
    assert first_failure("seed 7: at 3.000 us: EB-F3: node 1 writes\nseeds 0:200: 1\n", 1).startswith("seed 7: at")
    assert first_failure("nothing", 2) == "status 2"


def test_a_test_source_knows_its_program() -> None:
    assert program_of("src/protocol/claims_test.cpp") == "claims_test"
    assert program_of("src/transport/framed/session_test.cpp") == "framed_test"
    assert program_of("tests/conformance/order_test.cpp") == "conformance"
    assert not Path(ROOT, "src/protocol/no_such_test.cpp").exists()
