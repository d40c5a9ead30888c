"""Where the commands write. Colours are for terminals; elsewhere lines keep their length, whatever reads them.

What is written holds paths, addresses and titles of others: neither `[bold]` nor `:fire:` in them means anything.
"""

from rich.console import Console

# Long enough for every table here; a file or a pipe has no width to fold lines at.
_WIDTH_OF_NO_TERMINAL = 160


def open_console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH_OF_NO_TERMINAL)
    return console
