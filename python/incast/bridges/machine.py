"""What the experiments of all bridges need: where the bridge is, and what a result says of the machine."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from incast.base.errors import EXIT_NO_ENGINE, OneLineError
from incast.base.places import CHECKOUT
from incast.engine.idle import IdleRule, Window, usable_cores


@dataclass(frozen=True)
class Build:
    """Of a bridge: what its build.sh makes."""

    title: str  # of its users' program
    name: str  # its folder below bridges/ and build/
    variable: str  # of the environment, that names another folder
    program: Path  # in it
    document: str

    def find(self, given: Path | None) -> Path:
        """The folder: as given, of the variable, or below build/. OneLineError if the program is not there."""
        named = given or (Path(os.environ[self.variable]) if os.environ.get(self.variable) else None)
        places = [named] if named else [CHECKOUT / "build" / self.name, Path("build") / self.name]
        for place in places:
            if (place / self.program).is_file():
                return place.resolve()
        where = " and ".join(str(place / self.program) for place in dict.fromkeys(places))
        how = f"bridges/{self.name}/build.sh build/{self.name} makes it ({self.document})"
        raise OneLineError(f"the {self.title} bridge is not built: nothing at {where}; {how}", EXIT_NO_ENGINE)


def why_busy(window: Window | None) -> str | None:
    """Why the machine was not idle; None: it was, or that is not known."""
    if window is None or not window.is_known:
        return None
    return IdleRule().broken_by(window, usable_cores())


def machine_facts(loads: Sequence[float]) -> dict[str, Any]:
    """`loads`: of the last minute, before each round and at the end."""
    return {
        "cpu_model": _cpu_model(),
        "cores": usable_cores(),
        "kernel": f"{platform.system()} {platform.release()}",
        "load": [round(load, 2) for load in loads],
    }


def load_now() -> float:
    """Of the last minute."""
    return os.getloadavg()[0]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
