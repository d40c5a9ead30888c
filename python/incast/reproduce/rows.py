"""All rows, in the order of the published table."""

from incast.reproduce import deep_buffers, ethernet, infiniband, rapidio, requirements, root, zeromq
from incast.reproduce.model import Row


def _order(row: Row) -> tuple[int, str]:
    """Rows without a number come where their source's others are."""
    return (16, row.id) if not row.number.isdigit() else (int(row.number), row.id)


_PARTS = (rapidio, infiniband, deep_buffers, ethernet, requirements, root, zeromq)
ROWS: tuple[Row, ...] = tuple(sorted((row for part in _PARTS for row in part.ROWS), key=_order))
