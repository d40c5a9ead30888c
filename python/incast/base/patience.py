"""Deadlines of a process that may itself be stopped."""

import time
from collections.abc import Callable

LONGEST_LOOK_S = 2.0


class Patience:
    """So many seconds of this process's own running: what it was stopped for, alone or with its machine, does not
    count. It has to be looked at more often than every LONGEST_LOOK_S.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()
        self._left = seconds

    def is_over(self) -> bool:
        """Whether they have passed."""
        now = self._clock()
        self._left -= min(now - self._looked, LONGEST_LOOK_S)
        self._looked = now
        return self._left < 0
