"""Pastes every command of a page into a shell, in the order in which they are there; each must succeed.

usage: paste.py FOLDER PAGE...   FOLDER has .venv/bin/incast and fabrics, as a checkout after ./run; results go there

So that this takes minutes and no hours, runs are shorter than the page says. INCAST_PASTE_WHOLE=1 pastes what the page
says and nothing else.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHOLE = bool(os.environ.get("INCAST_PASTE_WHOLE"))
DEADLINE_S = 1800 if WHOLE else 300
READERS_TREES = ("FILE.root", "HZZ.root")
# What a page cannot know: names of results, ports that are free.
OWN = [
    (r"incast-results/DIR", r'incast-results/"$(ls -t incast-results | head -n 1)"'),
    (r"(--web-listen \S+):\d+", r"\1:0"),
]
# Less of the same.
SHORTER = [
    (
        r"^(\S*incast run\b(?!.*(--events|--check|--detach|--fabric|--source)).*)",
        r"\1 --set run.duration=300ms --set run.warm_up=100ms",
    ),
    (r"^(\S*incast net\b.*)", r"\1 --set run.duration=200ms --set run.warm_up=100ms"),
    (r"--events \d{5,}", "--events 2000"),
    (r"--budget \d+", "--budget 15"),
    (r"--repeats 3 --duration 2s", "--repeats 1 --duration 200ms"),
    (r"reproduce 3 12", "reproduce 3"),
]


def blocks(text: str) -> Iterator[str]:
    """What is between fences, if it is for a shell."""
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if kind in {"", "sh"}:
            yield block


def commands(text: str) -> list[str]:
    """The commands of Incast, without what is said behind them."""
    lines = [line for block in blocks(text) for line in block.splitlines()]
    return [line.split("  #")[0].rstrip() for line in lines if re.match(r"(\.venv/bin/)?incast [a-z-]", line)]


def fitted(command: str) -> str:
    for pattern, words in OWN if WHOLE else [*OWN, *SHORTER]:
        command = re.sub(pattern, words, command)
    return command


def write_tree(path: Path) -> None:
    """A small tree, as a reader's own."""
    import numpy as np
    import uproot

    random = np.random.default_rng(1)
    with uproot.recreate(path) as file:
        file["events"] = {name: random.random(500) for name in ("Jet_pt", "Jet_eta", "MET")}


def paste(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In that folder, where `incast` is the one of its environment."""
    path = os.pathsep.join([str(folder.resolve() / ".venv" / "bin"), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def paste_page(page: str, folder: Path) -> list[str]:
    """What went wrong. Pages are those of this checkout."""
    for name in READERS_TREES:
        if not (folder / name).exists():
            write_tree(folder / name)
    found = []
    for command in commands((ROOT / page).read_text()):
        begin = time.monotonic()
        done = paste(fitted(command), folder)
        print(f"{done.returncode:3} {time.monotonic() - begin:6.1f} s  {command}", flush=True)
        if done.returncode != 0:
            found.append(f"{page}: {command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found


def main(folder: str, *pages: str) -> int:
    found = [fault for page in pages for fault in paste_page(page, Path(folder))]
    print("\n".join(found))
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
