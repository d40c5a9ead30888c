"""`incast net` on candidates of a network, side by side on all cores."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from incast.base.errors import EXIT_BAD_CONFIG, EXIT_NO_ENGINE, OneLineError
from incast.base.files import FILES_OF_A_RUN, remove_files
from incast.engine.fabric_text import changed, fabric_setting
from incast.engine.program import find_engine
from incast.engine.transports import simulated, simulated_key
from incast.fit.free import Free
from incast.fit.kept import Figures, Kept
from incast.fit.measured import Observed, Point, observed_in, residuals
from incast.fit.solve import BudgetSpentError, Places

_TIMEOUT_S = 600.0


class Simulator:
    """Answers what the points would have been on networks with other values; each network once."""

    def __init__(
        self,
        text: str,
        free: Sequence[Free],
        points: Sequence[Point],
        window: tuple[str, str],
        *,
        jobs: int,
        folder: Path,
        budget: int,
        keep: Path | None,
        told: Callable[[int], None],
    ) -> None:
        """`window`: measured virtual time and the warm-up. `folder` is for files that go again. `budget`: networks at
        most, those of the file `keep` counted where they are asked for. `told` hears, now and then, how many networks
        there were.
        """
        self._text, self.free, self._points = text, free, points
        self._window, self._jobs, self._folder, self._told = window, jobs, folder, told
        self._engine = find_engine()
        self._budget = budget
        engine = self._engine.stat()
        asked = (engine.st_size, engine.st_mtime_ns, window, [point.settings for point in points])
        self._kept = Kept(keep, asked)
        self._known: dict[str, Figures] = {}
        self._places: dict[str, Places] = {}
        self._runs = 0

    def network(self, places: Places) -> str:
        """The file of the network with these values."""
        values = {free.key: free.written(free.at(place)) for free, place in zip(self.free, places, strict=True)}
        return changed(self._text, values)

    def observed(self, places: Places) -> Figures:
        """By point, of a network that was simulated."""
        return self._known[self.network(places)]

    @property
    def networks(self) -> int:
        """How many were asked for."""
        return len(self._known)

    @property
    def simulated(self) -> int:
        """How many of them were simulated now; the others come from the file that keeps them."""
        return self._runs // len(self._points)

    def known(self) -> Iterator[tuple[Places, list[float]]]:
        """All of them, with their residuals."""
        return ((places, self._residuals(text)) for text, places in self._places.items())

    def __call__(self, candidates: Sequence[Places]) -> list[list[float]]:
        """The residuals of each. BudgetSpentError: there would be more networks than the budget has."""
        texts = [self.network(places) for places in candidates]
        asked = {text: places for text, places in zip(texts, candidates, strict=True) if text not in self._known}
        if len(self._known) + len(asked) > self._budget:
            raise BudgetSpentError
        kept = {text: self._kept.figures(text) for text in asked}
        found = {text: figures for text, figures in kept.items() if figures is not None}
        new = [text for text in asked if text not in found]
        orders = [(text, fabric_setting(self._folder, text), point) for text in new for point in self._points]
        with ThreadPoolExecutor(max_workers=self._jobs) as pool:
            answers = list(pool.map(self._one, range(self._runs, self._runs + len(orders)), orders))
        self._runs += len(orders)
        for index, text in enumerate(new):
            found[text] = answers[index * len(self._points) : (index + 1) * len(self._points)]
            self._kept.add(text, found[text])
        self._known |= found
        self._places |= asked
        self._told(len(self._known))
        return [self._residuals(text) for text in texts]

    def _residuals(self, text: str) -> list[float]:
        seen = self._known[text]
        return [each for point, observed in zip(self._points, seen, strict=True) for each in residuals(point, observed)]

    def _one(self, number: int, order: tuple[str, tuple[str, ...], Point]) -> tuple[Observed, ...]:
        _, network, point = order
        output = self._folder / f"run-{number}"
        given = (
            *point.settings,
            f"transport.name={simulated()}",
            *network,
            f"{simulated_key('sample_interval')}=0",
            f"run.duration={self._window[0]}",
            f"run.warm_up={self._window[1]}",
        )
        words = [str(self._engine), *(word for each in given for word in ("--set", each))]
        words += ["--output", str(output), "--progress", "none", "--watched-by", str(os.getpid())]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
            result = json.loads((output / "result.json").read_text()) if done.returncode in (0, 1) else None
        except (OSError, ValueError):
            result = None
        except subprocess.TimeoutExpired as error:
            raise OneLineError(f"{point.name}: its simulation takes more than {_TIMEOUT_S:.0f} s", 1) from error
        remove_files(output, FILES_OF_A_RUN)
        if done.returncode == EXIT_BAD_CONFIG:
            said = (done.stderr.strip().splitlines() or ["refused with no message"])[-1].removeprefix("incast-node: ")
            raise OneLineError(f"{point.name}, simulated: {said}", EXIT_BAD_CONFIG)
        if done.returncode == EXIT_NO_ENGINE:
            raise OneLineError(f"the engine {words[0]} cannot be started", EXIT_NO_ENGINE)
        return () if result is None else observed_in(result)
