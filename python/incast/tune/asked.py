"""What somebody asked for, made into a tuning that can be begun: what is varied, how long a reading is."""

import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.engine.fabric_text import file_key
from incast.engine.quantity import Scalar, number_of
from incast.engine.transports import is_simulated
from incast.run.request import transport_of
from incast.scan.hosts import ScanHosts
from incast.scan.plan import Plan
from incast.scan.sweep import list_of
from incast.tune.goal import LATENCY, TRIGGER_RATE, Goal
from incast.tune.readings import LENGTHS
from incast.tune.space import USUAL, usual_axes, with_defaults
from incast.tune.tuning import RATE_KEY, Tuning, without_refused

_READINGS = 100  # whole ones that a budget would hold, were they all there is
_REAL_SECONDS = (0.5, 10.0)
_VIRTUAL_SECONDS, _VIRTUAL_WARM_UP = 0.005, 0.001
_OPEN_WARM_UP = 0.007  # of which 5 ms pass before the first trigger
_LEAST_WARM_UP = 0.2
_POLICY, _THROTTLE = "source.policy", "throttle"  # what waited would be built behind the reading


@dataclass(frozen=True)
class Asked:
    """`fixed`: settings of all points; `vary`: KEY=A,B,... or the word for the usual ones; times in seconds."""

    config: Path | None
    fixed: dict[str, Scalar]
    goal: Goal
    vary: Sequence[str]
    budget_s: float
    seconds: float | None
    warm_up_seconds: float | None
    seed: int

    def transport(self, *, across: bool) -> str:
        """The name of the one that is tuned. `across`: some nodes are on other hosts."""
        return transport_of(self.config, tuple(f"{key}={value}" for key, value in self.fixed.items()), across=across)

    def tuning(self, hosts: ScanHosts | None) -> tuple[Tuning, Plan]:
        """OneLineError: something of it cannot be, one line."""
        base = self._base()
        self._check_goal(base)
        transport = self.transport(across=hosts is not None)
        virtual = is_simulated(transport)
        usual = usual_axes(transport, self.fixed) if USUAL in self.vary or not self.vary else {}
        named = dict(self._named(each) for each in self.vary if each != USUAL)
        network = self.fixed.get(file_key())
        axes = with_defaults({**usual, **named}, base, None if network is None else Path(str(network)))
        seconds = self.seconds or (_VIRTUAL_SECONDS if virtual else _between(self.budget_s / _READINGS, *_REAL_SECONDS))
        warm_up = self.warm_up_seconds
        if warm_up is None and virtual:
            warm_up = _OPEN_WARM_UP if self.goal.name == TRIGGER_RATE or self._rate(base) else _VIRTUAL_WARM_UP
        elif warm_up is None:
            warm_up = max(_LEAST_WARM_UP, seconds / 10)
        fixed, with_rate = dict(self.fixed), dict[str, Scalar]()
        if self.goal.name == TRIGGER_RATE:  # without a rate the engine has no use for a policy
            with_rate = {_POLICY: fixed.pop(_POLICY, _THROTTLE)}
        goal = replace(self.goal, open_loop=self._rate(base) > 0)
        tuning = Tuning(goal, axes, fixed, with_rate, seconds, warm_up, self.seed)
        with tempfile.TemporaryDirectory() as place:
            may_go = set(usual) - set(named)
            shortest = tuning.plan(self.config, LENGTHS[0])
            tuning = without_refused(tuning, shortest, Path(place), may_go, hosts)
        return tuning, tuning.plan(self.config)

    def _base(self) -> str:
        if self.config is None:
            return ""
        try:
            text = self.config.read_text(encoding="utf-8")
            tomllib.loads(text)
        except (OSError, ValueError) as error:
            raise OneLineError(f"{self.config}: cannot be read: {error}", EXIT_BAD_CONFIG) from error
        return text

    def _check_goal(self, base: str) -> None:
        open_loop = self._rate(base) > 0
        if self.goal.name == LATENCY and not open_loop and self.goal.goodput_above is None:
            raise OneLineError(
                f"--goal {LATENCY}: without a load the least is that of an idle machine; allowed: with --set "
                f"{RATE_KEY}=HZ, or with --goodput-above RATE",
                EXIT_BAD_CONFIG,
            )
        if self.goal.name == TRIGGER_RATE and open_loop:
            raise OneLineError(f"--goal {TRIGGER_RATE}: it finds {RATE_KEY}; allowed: without it", EXIT_BAD_CONFIG)

    def _rate(self, base: str) -> float:
        """Of triggers, in Hz; 0: a closed loop."""
        return number_of(self.fixed.get(RATE_KEY, _value(base, RATE_KEY))) or 0.0

    def _named(self, text: str) -> tuple[str, tuple[Scalar, ...]]:
        key, values = list_of("--vary", text)
        if len(set(map(str, values))) < len(values) or len(values) < 2:
            raise OneLineError(f"--vary {text}: allowed: two values or more, each once", EXIT_BAD_CONFIG)
        if key in self.fixed:
            raise OneLineError(f"--vary {key}: --set says it, too; allowed: one of the two", EXIT_BAD_CONFIG)
        return key, tuple(values)


def _value(base: str, key: str) -> Scalar | None:
    section, _, name = key.partition(".")
    found = tomllib.loads(base).get(section, {}).get(name)
    return found if isinstance(found, bool | int | float | str) else None


def _between(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
