import pytest
from english import MAX_WORDS, check_english, has_verb, messages, sentences


def rules(text: str, path: str = "README.md") -> list[str]:
    return [finding.rule for finding in check_english(path, text)]


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("The dear one is not faster.", "english-dear"),
        ("Who cannot promise that the settings stay buys the other.", "english-who-clause"),
        ("Where, stands in the log.", "english-where-clause"),
        ("The reason stands in the log.", "english-stands-in"),
        ("A node tells whoever asks.", "english-who-clause"),
        ("It runs in a loop of one's own.", "english-one's-own"),
        ("What is left out is counted.", "english-what-clause"),
        ("Of three nodes it draws two.", "english-of-first"),
        ("It reads; it writes; it ends.", "english-semicolons"),
        ("A page with the run in a browser.", "english-no-verb"),
        ("It says " + "very " * MAX_WORDS + "much.", "english-long-sentence"),
    ],
)
def test_what_is_found(sentence: str, rule: str) -> None:
    assert rule in rules(f"# Title\n\nAll is well here. {sentence}\n")


@pytest.mark.parametrize(
    "text",
    [
        "Which one do you buy? What does it cost?\n",
        "The log says where. The expensive one is not faster.\n",
        "```\nWho cannot; see; the dear log\n```\n",
        "| Who stands in the table | a; b; c |\n|---|---|\n",
        "Use `who; stands; in` for that.\n",
        "Of course it works. Cables stand in the way of others.\n",
        "- one thing\n- another thing\n",
    ],
)
def test_what_is_not(text: str) -> None:
    assert rules(text) == []


def test_words_are_looked_for_in_all_pages_and_sentences_in_the_first() -> None:
    long = "It says " + "very " * MAX_WORDS + "much.\n"
    assert rules(long, "docs/physics.md") == []
    assert rules("The dear one.\n", "docs/physics.md") == ["english-dear"]
    assert rules("The dear one.\n", "docs/decisions/0001-x.md") == rules("The dear one.\n", "src/x.h") == []


def test_lines_of_sentences() -> None:
    text = "# Title\n\nOne is here. Two\nis there. Three is\n\n- four is an item\n"
    assert list(sentences(text)) == [
        (3, "One is here."),
        (3, "Two is there."),
        (4, "Three is"),
        (6, "four is an item"),
    ]


def test_verbs() -> None:
    assert has_verb("Choose a transport")
    assert has_verb("A node writes to it")
    assert not has_verb("A page for a browser")


def test_texts_of_the_engine() -> None:
    text = """// "a dear comment"
#include "who has.h"
const char* say = "it is " // a dear comment
                  "dear \\"now\\"";
auto one = 'x', two = R"(dear raw)";
"""
    assert list(messages("src/x.cpp", text)) == [(3, 'it is dear \\"now\\"')]
    assert rules(text, "src/x.cpp") == ["english-dear"]
    assert rules(text, "src/x_test.cpp") == []


def test_texts_of_the_package() -> None:
    text = '"""A dear module."""\n\n\ndef run(help="Of the search."):\n    """Whoever runs."""\n'
    text += '    return f"a dear {run}"\n'
    assert rules(text, "python/incast/run/x.py") == ["english-dear"]
    assert sorted(rules(text, "python/incast/cli/x.py")) == ["english-dear", "english-of-first", "english-who-clause"]


@pytest.mark.parametrize("said", ["who has events and finishes none loses them", "it ended without a word"])
def test_what_programs_do_not_say(said: str) -> None:
    assert len(rules(f'say("{said}");', "src/x.cpp")) == 1
    assert rules('say("who builds a MEP, and who sends it");', "src/x.cpp") == []
