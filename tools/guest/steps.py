"""Several commands in one guest: a boot takes longer than most of what is asked of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from guest import machine

INSIDE = machine.INSIDE


@dataclass(frozen=True)
class Step:
    """A script for bash. What it leaves, the next ones find; it does not matter to them how it ended."""

    name: str
    script: str
    timeout_s: float = 60.0


@dataclass(frozen=True, repr=False)
class Result:
    """status: 124 if the step took too long; None if it was not reached, or not ended."""

    name: str
    status: int | None
    output: str
    seconds: float

    def __repr__(self) -> str:
        return f"step '{self.name}' ended with status {self.status} after {self.seconds:.1f} s and said:\n{self.output}"


def run(steps: Sequence[Step], folder: Path, options: machine.Options) -> dict[str, Result]:
    """What became of each. `folder` is /out in the guest; steps.json there says the same. Raises what machine.run does
    where no step was begun.
    """
    place = folder / "steps"
    place.mkdir(parents=True)
    stems = {step.name: place / f"{number:03}" for number, step in enumerate(steps)}
    for step in steps:
        stem = stems[step.name]
        stem.with_suffix(".sh").write_text(step.script)
        stem.with_suffix(".limit").write_text(f"{step.timeout_s:g}")
    try:
        machine.run([str(INSIDE / "steps.sh")], replace(options, out=folder), lambda _: None, lambda _: None)
    except machine.GuestError:
        if not list(place.glob("*.output")):
            raise
    results = {name: read(name, stem) for name, stem in stems.items()}
    (folder / "steps.json").write_text(json.dumps([asdict(result) for result in results.values()], indent=1) + "\n")
    return results


def read(name: str, stem: Path) -> Result:
    """From the files that inside/steps.sh left."""
    output = stem.with_suffix(".output")
    ended = stem.with_suffix(".end")
    said = output.read_text(errors="replace") if output.exists() else ""
    words = ended.read_text().split() if ended.exists() else []
    if len(words) != 2:
        return Result(name, None, said, 0.0)
    return Result(name, int(words[0]), said, int(words[1]) / 1e6)
