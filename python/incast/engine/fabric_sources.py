"""Where the parameters of a network file come from, as the comments behind them say (fabrics/README.md).

    rate = "16Gb/s"     # [S1]: 4 lanes of 5 Gbaud, 8b/10b

Every key behind which something stands is a parameter, and what stands there begins with its source. Keys without a
comment are names and wiring.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# In the order of how far one may rely on them.
CLASSES = ("published", "document", "arithmetic", "recalled", "fitted", "assumed")
_TABLE = re.compile(r"\s*\[\[?([^\]]+)\]\]?")
_PARAMETER = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\[[^\]]*\]|[^#\s]+)\s*#\s*(\S.*)")


@dataclass(frozen=True)
class Parameter:
    """One line of a file."""

    key: str  # with its table: links.x4.rate
    value: str
    source: str

    @property
    def kind(self) -> str:
        """One of CLASSES: published in a paper of the list, a standard or public document, and so on."""
        word = self.source.split()[0].rstrip(":,;")
        if word.startswith("["):
            return "published"
        return word if word in CLASSES else "document"


def parameters(text: str) -> list[Parameter]:
    """Of a file, in its order. "the same ..." takes the class of the one before."""
    found: list[Parameter] = []
    table = ""
    for line in text.splitlines():
        if parameter := _PARAMETER.match(line):
            key, value, source = parameter.groups()
            if source.startswith("the same") and found:
                source = f"{found[-1].kind}: {source}"
            found.append(Parameter(f"{table}.{key}", value, source))
        elif heading := _TABLE.match(line):
            table = heading[1]
    return found


def lines(file: Path) -> list[str]:
    """For a person: every parameter, the least certain last."""
    found = sorted(parameters(file.read_text(encoding="utf-8")), key=lambda one: CLASSES.index(one.kind))
    width = max((len(f"{one.key} = {one.value}") for one in found), default=0)
    return [f"{one.kind:10}  {f'{one.key} = {one.value}':{width}}  {one.source}" for one in found]


def _short(found: Iterable[Parameter], kind: str) -> str:
    keys = [one.key.removeprefix("topology.") for one in found if one.kind == kind]
    return ", ".join(f"`{key}`" + (f" x {count}" if count > 1 else "") for key, count in Counter(keys).items())


def table(files: Iterable[Path]) -> str:
    """As Markdown: how many parameters of each file have which kind of source, and which are fitted or assumed."""
    rows = [
        f"| file | {' | '.join(CLASSES)} | which are fitted | which are assumed or recalled |",
        "|---" * (len(CLASSES) + 3) + "|",
    ]
    for file in files:
        found = parameters(file.read_text(encoding="utf-8"))
        count = Counter(one.kind for one in found)
        cells = [f"`{file.stem}`", *(str(count[kind]) for kind in CLASSES), _short(found, "fitted")]
        rest = ", ".join(filter(None, (_short(found, "assumed"), _short(found, "recalled"))))
        rows.append(f"| {' | '.join([*cells, rest])} |")
    return "\n".join(rows) + "\n"
