"""Engines that are at work, found by where they write to."""

import os
from contextlib import suppress
from pathlib import Path


def engines_writing_to(place: Path, *, below: bool = False) -> list[int]:
    """Process ids of engines whose `--output`, an absolute path, is that directory, or lies below it.

    Nodes that an engine started for itself have no `--output`: the engine ends them. This process is none.
    """
    wanted = os.fsencode(place.resolve())
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            outputs = [words[k + 1] for k, word in enumerate(words[:-1]) if word == b"--output"]
            if any(output.startswith(wanted + b"/") if below else output == wanted for output in outputs):
                found.append(int(folder.name))
    return found
