"""A file of the networks that were simulated, so that a fit can go on where its budget ended."""

import hashlib
import json
from pathlib import Path

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.fit.measured import Observed

Figures = list[tuple[Observed, ...]]  # by point


class Kept:
    """One JSON object a line: a hash of the network's file and of all that was asked of it, and the figures by point.
    What was asked otherwise, or of another engine, is in the way of nothing. Without a file nothing is kept.
    """

    def __init__(self, file: Path | None, asked: object) -> None:
        """`asked`: what the figures follow from, beside the network; its repr() counts."""
        self._file, self._asked = file, repr(asked)
        self._figures: dict[str, Figures] = {}
        if file is None:
            return
        try:
            lines = file.read_text().splitlines() if file.exists() else []
            for line in lines:
                row = json.loads(line)
                self._figures[row["network"]] = [
                    tuple(Observed(str(name), float(value)) for name, value in point) for point in row["figures"]
                ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OneLineError(f"--keep {file}: {error}; allowed: a file that --keep wrote", EXIT_BAD_CONFIG) from error

    def figures(self, network: str) -> Figures | None:
        """Of a network, given as its file's text; None: it is not there."""
        return self._figures.get(self._key(network))

    def add(self, network: str, figures: Figures) -> None:
        """At the end of the file."""
        if self._file is None:
            return
        points = [[[each.name, each.value] for each in point] for point in figures]
        try:
            with self._file.open("a") as end:
                end.write(json.dumps({"network": self._key(network), "figures": points}) + "\n")
        except OSError as error:
            raise OneLineError(f"--keep {self._file}: {error.strerror}", EXIT_BAD_CONFIG) from error

    def _key(self, network: str) -> str:
        return hashlib.sha256(f"{self._asked}\n{network}".encode()).hexdigest()
