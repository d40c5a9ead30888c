"""Parts of documents that are written from results: what stands around them, and tables in them."""

from pathlib import Path

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.bridges.zmq_tables import BridgeTable


def around(path: Path, begin: str, end: str) -> tuple[str, str]:
    """What stands before and behind these two lines. OneLineError if the file does not have both."""
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise OneLineError(f"--write-docs {path}: has no lines '{begin}' and '{end}'", EXIT_BAD_CONFIG)
    return before, after


def markdown(table: BridgeTable) -> list[str]:
    """Its lines."""

    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    return [line(table.headings), "|---|" + "---:|" * (len(table.headings) - 1), *map(line, table.rows)]
