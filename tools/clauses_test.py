"""Every rule about clauses must see a planted violation, and stay quiet on what is right."""

import pytest
from clauses import DEFINED_IN, check_clauses, read_clauses, read_texts
from mutants import ROOT, read_list

PROTOCOL = DEFINED_IN["EB"]
CONTRACT = DEFINED_IN["TC"]
SOUND = {
    PROTOCOL: "- **EB-C1** A credit is a slot.\n- **EB-F7** (planned) Another one takes over.\n",
    CONTRACT: "- **TC-O1** Messages keep their order.\n- **TC-O2** So do notices.\n",
    "src/protocol/a.cpp": "// A credit is a slot (EB-C1).\n",
    "src/protocol/a_test.cpp": "TEST(Credits, EB_C1_AreSlots) {\n",
    "tests/conformance/order_test.cpp": "TEST_P(Conformance, TC_O1_MessagesArriveInOrder) {\n",
    "tests/process/test_order.py": "def test_tc_o2_notices_keep_their_order() -> None:\n",
}


def hints(changed: dict[str, str]) -> list[str]:
    return [f"{finding.path}: {finding.hint}" for finding in check_clauses({**SOUND, **changed})]


def test_what_is_right_passes() -> None:
    assert hints({}) == []
    assert hints({"docs/fabrics.md": "16 nodes [S1], `-O1`\n", "a.cpp": "x.C1 = C1(2); // see [O1]\n"}) == []
    assert hints({"docs/README.md": "It is planned that another one takes over (EB-F7).\n"}) == []


@pytest.mark.parametrize(
    ("path", "text", "hint"),
    [
        ("src/a.cpp", "// EB-C2: something else\n", "there is no clause EB-C2"),
        ("docs/a.md", "| TC-O3 | a row |\n", "there is no clause TC-O3"),
        ("src/a_test.cpp", "TEST(A, EB_C9_IsTested) {\n", "there is no clause EB-C9"),
        ("tests/process/test_a.py", "def test_eb_c9_is_tested() -> None:\n", "there is no clause EB-C9"),
        ("src/a.cpp", "// PROTO" + "COL F1\n", "own documents"),
        ("src/a.cpp", "// as in seed " + "000\n", "own documents"),
        ("src/a.cpp", "int a = 0;  // a slot (C1)\n", "C1 of which document?"),
        ("docs/a.md", "C1, O2 say so.\n", "C1 of which document?"),
        ("src/a.cpp", 'violation("C1", "two")\n', "C1 of which document?"),
        (PROTOCOL, SOUND[PROTOCOL] + "- **EB-C2** Without a test.\n", "EB-C2 is built, but no test"),
        (PROTOCOL, SOUND[PROTOCOL].replace(" (planned)", ""), "EB-F7 is built, but no test"),
        ("src/b_test.cpp", "TEST(A, EB_F7_TakesOver) {\n", "EB-F7 is said to be planned"),
        (PROTOCOL, SOUND[PROTOCOL] + "- **EB-C1** Once more.\n", "EB-C1 is defined twice"),
        (
            PROTOCOL,
            SOUND[PROTOCOL] + "- **TC-O9** (planned) Over there.\n",
            "TC-O9 is defined twice, or in the wrong document",
        ),
    ],
)
def test_planted_violation_is_found(path: str, text: str, hint: str) -> None:
    found = hints({path: text})
    assert len(found) == 1
    assert hint in found[0]


def test_a_comment_is_no_test() -> None:
    found = hints({"src/protocol/a_test.cpp": "/// EB-C1: EB_C1_ is tested.\nTEST(Credits, AreSlots) {\n"})
    assert found == [f"{PROTOCOL}: EB-C1 is built, but no test bears its name"]


def test_every_mutant_breaks_a_clause_that_is_built() -> None:
    clauses, findings = read_clauses(read_texts(ROOT, DEFINED_IN.values()))
    assert not findings
    for mutant in read_list():
        assert mutant.clause in clauses
        assert not clauses[mutant.clause].planned
