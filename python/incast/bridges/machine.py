"""What a result of a bridge says of the machine."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from incast.engine.idle import usable_cores


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
