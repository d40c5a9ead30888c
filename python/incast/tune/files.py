"""What a tuning leaves: the settings, as a file that `incast run` takes, and its outcome as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from incast.base.files import replace_file
from incast.engine import fabric_text
from incast.engine.quantity import Scalar
from incast.scan.journal import TUNE_RESULTS
from incast.scan.plan import Plan
from incast.tune.goal import TRIGGER_RATE
from incast.tune.outcome import Outcome
from incast.tune.tuning import RATE_KEY, Tuning


def write_results(folder: Path, tuning: Tuning, plan: Plan, outcome: Outcome, found: Mapping[str, Any]) -> Path | None:
    """Both files; the path of the settings, or None if there are none. OSError."""
    settings, summary = (folder / name for name in TUNE_RESULTS)
    replace_file(summary, json.dumps(found, indent=1) + "\n")
    if outcome.best is None:
        settings.unlink(missing_ok=True)
        return None
    replace_file(settings, _settings(folder, tuning, plan, outcome))
    return settings


def _settings(folder: Path, tuning: Tuning, plan: Plan, outcome: Outcome) -> str:
    """The configuration file that was given, with all that was set and found."""
    best = outcome.best
    assert best is not None
    chosen: dict[str, Scalar] = {**tuning.fixed, **best.axes}
    if outcome.goal.name == TRIGGER_RATE and (rate := outcome.figure(best)) is not None:
        chosen |= {**tuning.with_rate, RATE_KEY: f"{rate:.6g}Hz"}
    if plan.points[0].simulated:
        chosen |= {"run.duration": _seconds(tuning.seconds), "run.warm_up": _seconds(tuning.warm_up_seconds)}
    network = {key: value for key, value in chosen.items() if key.startswith(fabric_text.PREFIX)}
    if network:
        text = fabric_text.read_fabric_text(Path(str(chosen[fabric_text.file_key()])))
        changes = {key.removeprefix(fabric_text.PREFIX): value for key, value in network.items()}
        chosen[fabric_text.file_key()] = str(fabric_text.stored(folder, fabric_text.changed(text, changes)))
    figure = outcome.figure(best)
    head = f"# incast tune: {outcome.goal.words}; {outcome.goal.shown(figure or 0.0)}" + (
        "" if outcome.confirmed else ", not confirmed"
    )
    return f"{head}\n" + fabric_text.changed(
        plan.base, {key: value for key, value in chosen.items() if key not in network}
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
