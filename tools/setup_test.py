"""What `./run` says while it builds."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parent / "setup.sh"
# Says what a dry run of ninja says, and then, as the build, how far it is.
CMAKE = """#!/bin/sh
case "$*" in
    *" -n") echo "[$STEPS/$STEPS] Linking CXX executable bin/incast-node" ;;
    *)
        echo "[7/$STEPS] Building"
        [ -z "$SCREEN" ] || until grep -q 7/ "$SCREEN"; do sleep 0.05; done
        ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with nothing but the script, and a cmake that only talks."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "setup.sh").write_bytes(SETUP.read_bytes())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cmake").write_text(CMAKE)
    (tmp_path / "bin" / "cmake").chmod(0o755)
    return tmp_path


def build(tree: Path, steps: int, stderr: int = subprocess.PIPE, screen: str = "") -> str:
    """Standard error of a build of so many steps, on two cores."""
    path = f"{tree / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", "set -o pipefail; . tools/setup.sh; incast_build incast-node"],
        cwd=tree, env=os.environ | {"PATH": path, "STEPS": str(steps), "INCAST_JOBS": "2", "SCREEN": screen},
        stderr=stderr, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stderr or ""


def test_a_long_build_says_how_long_it_takes(tree: Path) -> None:
    assert build(tree, 375).splitlines() == [
        "incast: building incast-node (build/release)",
        "incast: 375 steps, about 10 min on 2 cores; to look: tail -f build/setup.log",
    ]
    assert build(tree, 3).splitlines() == ["incast: building incast-node (build/release)"]


def test_on_a_terminal_the_count_moves(tree: Path) -> None:
    """The build ends once the count was seen, so the terminal has it."""
    ours, theirs = pty.openpty()
    screen = tree / "screen"
    with screen.open("wb") as shown:
        reader = subprocess.Popen(["cat"], stdin=ours, stdout=shown, stderr=subprocess.DEVNULL)
    try:
        build(tree, 375, theirs, str(screen))
    finally:
        os.close(theirs)
        os.close(ours)
        reader.wait(30)
    assert "incast: [7/375]" in screen.read_text()
