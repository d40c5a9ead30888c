"""Where the commands write. Colours are for terminals; elsewhere lines keep their length, whatever reads them.

What is written holds paths, addresses and titles of others: neither `[bold]` nor `:fire:` in them means anything.
"""

import re
import sys
import textwrap
from typing import TextIO, cast

from rich.console import Console

# Long enough for every table here; a file or a pipe has no width to fold lines at.
_WIDTH_OF_NO_TERMINAL = 160
# What is words and no table is folded there, between words: paths and keys stay whole.
COLUMNS = 80


class _Plain:
    """A stream of lines without blanks at their ends, which tables are filled up with."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        self._stream.write(re.sub(r" +(?=\n)", "", text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return False


def folded(text: str, *, first: str = "", indent: int = 0) -> str:
    """Lines of at most COLUMNS, the first one behind `first`, the others behind as many blanks as `indent`."""
    return textwrap.fill(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def open_console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH_OF_NO_TERMINAL)
        console.file = cast(TextIO, _Plain(sys.stderr if stderr else sys.stdout))
    return console
