"""Points that are worth a look: spread over all at first, then where those that are known promise most (optuna's TPE).

The model is made anew of all that is known for each proposal: it takes milliseconds, and a tuning that goes on after a
stop needs nothing but its journal.
"""

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from incast.base.extras import need
from incast.engine.quantity import Scalar
from incast.tune.goal import Score
from incast.tune.space import Axes, Axis, identity

LIBRARY = "optuna"
PURPOSE = "incast tune"
_TRIES = 20


def spread(axes: Sequence[Axis], count: int, seed: int) -> list[Axes]:
    """So many points in which each value of each setting stands about equally often (a Latin hypercube)."""
    chance = random.Random(seed)
    columns: list[list[Scalar]] = []
    for axis in axes:
        column: list[Scalar] = []
        while len(column) < count:
            column += chance.sample(axis.values, len(axis.values))
        column = column[:count]
        chance.shuffle(column)
        columns.append(column)
    return [dict(zip((axis.key for axis in axes), values, strict=True)) for values in zip(*columns, strict=True)]


def around(axes: Sequence[Axis], centre: Mapping[str, Scalar], most: int) -> Iterator[Axes]:
    """Points that differ from it in one setting, by up to `most` steps; the nearest of each setting come first."""
    ways = [(axis.key, axis.steps_from(centre[axis.key], most)) for axis in axes]
    for step in range(max((len(values) for _, values in ways), default=0)):
        for key, values in ways:
            if step < len(values):
                yield {**centre, key: values[step]}


@contextmanager
def _quiet() -> Iterator[None]:
    """The library warns that grouped sampling is new."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Proposer:
    """Asks the sampler. `known`: points with their scores; `pending`: points that are being measured."""

    def __init__(
        self, axes: Sequence[Axis], known: Sequence[tuple[Axes, Score]], pending: Sequence[Axes], seed: int
    ) -> None:
        self._axes = axes
        self._optuna: Any = need(LIBRARY, PURPOSE)
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        self._seen = {identity(point) for point, _ in known} | {identity(point) for point in pending}
        self._space = {axis.key: self._distribution(axis) for axis in axes}
        self._chance = random.Random(seed)
        with _quiet():
            sampler = self._optuna.samplers.TPESampler(
                multivariate=True, group=True, constant_liar=True, n_startup_trials=0, seed=seed % 2**32
            )
            self._study = self._optuna.create_study(direction="maximize", sampler=sampler)
            # Only the order counts for it, and a failure has a place in that.
            order = sorted({score for _, score in known})
            for point, score in known:
                self._add(point, float(order.index(score)))
            for point in pending:
                self._add(point, None)

    def _distribution(self, axis: Axis) -> Any:
        made = self._optuna.distributions
        last = len(axis.values) - 1
        return made.IntDistribution(0, last) if axis.ordered else made.CategoricalDistribution(list(range(last + 1)))

    def _add(self, point: Axes, value: float | None) -> None:
        # A default need not be one of the values: then nothing is known of that setting.
        places = {axis.key: index for axis in self._axes if (index := axis.index(point[axis.key])) is not None}
        state = self._optuna.trial.TrialState
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=places,
                distributions={key: self._space[key] for key in places},
                value=value,
                state=state.RUNNING if value is None else state.COMPLETE,
            )
        )

    def next(self) -> Axes | None:
        """A point that nobody has proposed yet; None if there is none left that it finds."""
        for _ in range(_TRIES):
            with _quiet():
                asked = self._study.ask(self._space).params
            point = {axis.key: axis.values[int(asked[axis.key])] for axis in self._axes}
            if identity(point) not in self._seen:
                self._seen.add(identity(point))
                return point
        return None

    def any(self) -> Axes | None:
        """The same by chance alone."""
        for _ in range(_TRIES * 10):
            point = {axis.key: self._chance.choice(axis.values) for axis in self._axes}
            if identity(point) not in self._seen:
                self._seen.add(identity(point))
                return point
        return None
