"""All rows, in the order of the published table."""

from incast.reproduce import ethernet, infiniband, rapidio, requirements
from incast.reproduce.model import Row


def _order(row: Row) -> tuple[int, str]:
    """Rows without a number come where their source's others are."""
    return (16, row.id) if not row.number.isdigit() else (int(row.number), row.id)


ROWS: tuple[Row, ...] = tuple(sorted([*rapidio.ROWS, *infiniband.ROWS, *ethernet.ROWS, *requirements.ROWS], key=_order))
