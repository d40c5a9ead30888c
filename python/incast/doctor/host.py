"""What can be read of a host, below a root folder: its own, or a copy of another one's /sys, /proc and /dev."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Host:
    """Reads, and nothing else. What is not there, or may not be read, is None or empty."""

    root: Path = Path("/")
    pause: Callable[[float], None] = time.sleep

    @property
    def is_this(self) -> bool:
        """Whether it is no copy."""
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        """`name` as on the host, from its root on."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """Without white space at its ends."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:  # sysfs says so, too, of a GID that is not set
            return None

    def number(self, name: str) -> int | None:
        """None if it is no whole number."""
        text = self.text(name)
        return int(text) if text is not None and text.isdecimal() else None

    def names(self, name: str) -> list[str]:
        """What lies in a folder."""
        try:
            return sorted(path.name for path in self.path(name).iterdir())
        except OSError:
            return []

    def exists(self, name: str) -> bool:
        """Whether it is there."""
        return self.path(name).exists()

    def said(self, words: Sequence[str]) -> str | None:
        """What a program prints that only shows something; of a copy, the file that it was kept in (said/WORD-WORD)."""
        if not self.is_this:
            return self.text("said/" + "-".join(word.strip("-") for word in words))
        if shutil.which(words[0]) is None:
            return None
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None


FAULT, ADVICE = "fault", "advice"


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    check: str
    level: str  # fault: something fails, or data is lost; advice: it works, less well
    where: str
    value: str
    right: str
    command: str
    reason: str
    host: str = ""  # where several were looked at
