"""Finds the English that slowed readers down most, in the pages that people read (STYLE.md, Words for people).

Words are looked for in every page, and in what programs say: strings of the engine and the Python package, help texts
among them. The length and the build of sentences are looked at in the pages that a new user reads. A sentence is what
is left of a paragraph or an item of a list without code, links and tables.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from clauses import Finding

# Pages of which every sentence is looked at.
FIRST_PAGES = {"README.md", "docs/README.md", "docs/install.md", "docs/tutorial.md", "docs/running.md"}
# Records of what was thought at a time; they stay as they are.
RECORDS = ("docs/decisions/", "CHANGELOG.md", "docs/experiments.md")
MAX_WORDS = 35

CODE = "it"  # stands for what is between backticks


class Pattern(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    hint: str


# What no page says. Patterns are looked for in whole sentences.
WORDS = [
    Pattern("dear", re.compile(r"\bdear(er|est|ly)?\b", re.I), "expensive, slow, high: say which"),
    Pattern("stands-in", re.compile(r"\bstands? in (?!(for|the (way|place))\b)"), "is in; see"),
    Pattern("who-clause", re.compile(r"^Who\b(?!.*\?$)|\b[Ww]hoever\b"), "name who it is: 'a peer that', 'if you'"),
    Pattern("where-clause", re.compile(r"^(Where|When|Why|How), (stands|is|are)\b"), "say which page has it"),
    Pattern("one's-own", re.compile(r"\bone's own\b|\bof one's\b"), "your own"),
]
# What programs do not say either, help texts among it.
MESSAGES = [
    Pattern("who-subject", re.compile(r"^who (has|says|is|does|can|cannot|wants)\b(?!.*\?$)"), "one that, a peer that"),
    Pattern("without-a-word", re.compile(r"\bwithout a word\b"), "with no message"),
]
# Nor do the help texts of commands and options.
HELP = [Pattern("of-first", re.compile(r"^Of (?!course)"), "begin with the thing: 'Seed of the search.'")]
# What the first pages do not say either.
SENTENCES = [
    Pattern("what-clause", re.compile(r"^(What|Whatever)\b(?!.*\?$)"), "begin with the thing itself"),
    Pattern("of-first", re.compile(r"^Of (?!course)"), "begin with the subject"),
    Pattern("semicolons", re.compile(r";.*;"), "one thought in a sentence"),
    Pattern("anew", re.compile(r"\banew\b"), "again"),
    Pattern("without-a-word", re.compile(r"\bwithout a word\b"), "silently; with no message"),
]

# Enough to see that a sentence has a verb; all words in -s, -ed and -ing count as well.
_VERBS = """
add allow am appear apply are ask be became become began begin belong borrow brought build call came can carry change
check choose chose close come compare contain copy cost could count cut decide depend describe did differ do does
download end exist explain fail fall find fit follow found gave get give go grow had has have held help hold include
install is keep kept know leave left let list look lose lost made make match may mean measure might move must need
note open pass press print put ran reach read receive remain remember replace return run said say see send sent set
shall share should show simulate start stay stop suffice support take tell told took try use vary wait want was watch
went were will win work would write
"""
VERBS = set(_VERBS.split())


def is_page(path: str) -> bool:
    shown = path.endswith(".md") and path.startswith(("README.md", "docs/", "examples/"))
    return shown and not path.startswith(RECORDS)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Every sentence with the line it begins on."""
    for line, paragraph in _paragraphs(text):
        at = line
        for found in re.finditer(r".+?(?:[.!?](?=\s+[A-Z`*(\[]|\s*$)|$)", paragraph, re.S):
            sentence = found[0]
            start = at + sentence[: len(sentence) - len(sentence.lstrip())].count("\n")
            at += sentence.count("\n")
            plain = _plain(sentence)
            if plain:
                yield start, plain


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Without code, tables, headings and pictures; an item of a list is a paragraph."""
    kept: list[str] = []
    first, fenced = 1, False
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        fence = line.lstrip().startswith("```")
        ends = fence or fenced or not line.strip() or line.startswith(("|", "#", "!", "<"))
        item = re.match(r"\s*([-*]|\d+\.)\s+", line)
        if (ends or item) and kept:
            yield first, "\n".join(kept)
            kept = []
        fenced ^= fence
        if not ends:
            if not kept:
                first = number
            kept.append(line[item.end() :] if item else line.strip())


def _plain(sentence: str) -> str:
    text = re.sub(r"`[^`]*`", CODE, " ".join(sentence.split()))
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("*", "").strip()


def has_verb(sentence: str) -> bool:
    """A guess: a word that may be a verb, and has no article before it."""
    bare = re.sub(r"\b(an?|the|its|your|each|every|no)\s+\w+", "", sentence, flags=re.I)
    words = [word.lower() for word in re.findall(r"[A-Za-z']+", bare)]
    return any(word in VERBS or re.fullmatch(r"\w{2,}(s|ed|n't)|\w{3,}ing", word) for word in words)


# Literals that stand behind each other are one text.
_LITERAL = r'"(?:[^"\\\n]|\\.)*"'
_LITERALS = re.compile(rf"(?<!')(?<!R){_LITERAL}(?:\s*{_LITERAL})*")
_NEITHER = re.compile(r"^[ ]*(?://|#\s*include)[^\n]*$|//(?=[^\"\n]*$)[^\n]*|R\"\w*\(.*?\)\w*\"", re.M | re.S)


def is_program(path: str) -> bool:
    """What says something to people: neither tests nor what makes the others."""
    if path.startswith("src/") and path.endswith((".cpp", ".h")):
        return not path.endswith("_test.cpp")
    return path.startswith("python/incast/") and path.endswith(".py")


def messages(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Every text of a program with the line it begins on; of the command line also what functions say of themselves."""
    if path.endswith(".py"):
        yield from _messages_of_python(ast.parse(text), has_help=path.startswith("python/incast/cli/"))
        return
    bare = _NEITHER.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for found in _LITERALS.finditer(bare):
        said = "".join(part[1:-1] for part in re.findall(_LITERAL, found[0]))
        yield bare.count("\n", 0, found.start()) + 1, said


def _messages_of_python(tree: ast.Module, *, has_help: bool) -> Iterator[tuple[int, str]]:
    documents = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            is_help = has_help and isinstance(node, ast.FunctionDef) and node in tree.body
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and not is_help:
                documents.add(id(first.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.lineno, node.value


def check_messages(path: str, text: str) -> Iterator[Finding]:
    if not is_program(path):
        return
    for line, said in messages(path, text):
        if " " not in said.strip():
            continue  # a name, a key, a format
        rules = [*WORDS, *MESSAGES, *(HELP if path.startswith("python/incast/cli/") else [])]
        for sentence in re.split(r"(?<=[.;:!?])\s+", said):
            for rule in rules:
                if rule.pattern.search(sentence):
                    yield Finding(path, line, f"english-{rule.name}", f"{rule.hint}: {sentence[:60]}")


def check_english(path: str, text: str) -> Iterator[Finding]:
    yield from check_messages(path, text)
    if not is_page(path):
        return
    strict = path in FIRST_PAGES
    for line, sentence in sentences(text):
        for rule in [*WORDS, *(SENTENCES if strict else [])]:
            if rule.pattern.search(sentence):
                yield Finding(path, line, f"english-{rule.name}", f"{rule.hint}: {sentence[:60]}")
        words = len(re.findall(r"[\w'/.-]*\w", sentence))
        if strict and words > MAX_WORDS:
            hint = f"{words} words, at most {MAX_WORDS}: {sentence[:60]}"
            yield Finding(path, line, "english-long-sentence", hint)
        if strict and words > 3 and sentence.endswith(".") and not has_verb(sentence):
            yield Finding(path, line, "english-no-verb", f"a sentence has a verb: {sentence[:60]}")
