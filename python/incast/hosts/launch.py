"""The nodes of a run on other hosts, from the moment its coordinator listens until all of them have ended."""

import os
import secrets
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import reason_of, writing_output
from incast.engine.progress import Listening, Notice, Phase, Progress
from incast.hosts.commands import Commands, Ended, Said
from incast.hosts.spread import BY_HAND, Spread

_EXIT_FAILED = 1
_ENDING = ("draining", "closing", "done")
_ENGINE = "incast-node: "


def read_token(file: Path) -> str:
    """Of a file with one word."""
    try:
        words = file.read_text(encoding="utf-8").split()
    except (OSError, ValueError) as error:
        words, why = [], reason_of(error) if isinstance(error, OSError) else "no text in UTF-8"
    else:
        why = f"{len(words)} words in it"
    if len(words) != 1:
        raise OneLineError(f"--token-file {file}: {why}; allowed: a file with one word", EXIT_BAD_CONFIG)
    return words[0]


def run_token(spread: Spread | None) -> str:
    """What nodes have to know to be let in."""
    if spread is not None and spread.token_file:
        return read_token(Path(spread.token_file))
    return secrets.token_hex(16)


class Conducted(Protocol):
    """A run whose engine here conducts nodes elsewhere."""

    def stop(self) -> None:
        """It drains and reports."""

    def fail(self, error: OneLineError) -> None:
        """It ends at once, because of that."""


class Launch:
    """Starts them, and says what they say. All calls come from one thread."""

    def __init__(self, spread: Spread, output: Path, token: str, tell: Callable[[Notice], None]) -> None:
        self._spread = spread
        self._output = output
        self._token = token
        self._tell = tell
        self._commands: Commands | None = None
        self._last: dict[str, str] = {}  # what each said last
        self._all_joined = False
        self._ending = False
        self._left: Path | None = None

    def on_progress(self, progress: Progress) -> None:
        """Looks at the engine's reports for what concerns it."""
        match progress:
            case Listening(address) if self._spread.launcher == BY_HAND:
                self._invite(address)
            case Listening(address) if self._commands is None:
                jobs = self._spread.jobs(address, self._output, self._token)
                self._commands = Commands(jobs, self._spread.ssh)
            case Phase(name):
                self._all_joined = self._all_joined or name != "joining"
                self._ending = self._ending or name in _ENDING

    def _invite(self, address: str) -> None:
        """The token is shown to nobody: it goes into a file that only its owner can read."""
        file = Path(self._spread.token_file) if self._spread.token_file else None
        if file is None:
            file = self._left = self._output.with_name(self._output.name + ".token")
            with writing_output(self._output):
                file.unlink(missing_ok=True)
                descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(descriptor, "w") as text:
                    text.write(self._token + "\n")
        missing = self._spread.guests
        count = ["--nodes", str(missing)] if missing > 1 else []
        line = shlex.join(["incast", "join", address, *count, "--token-file", str(file.absolute())])
        them = f"{missing} nodes, which are" if missing > 1 else "1 node, which is"
        self._tell(Notice("info", f"waiting for {them} started by: {line}"))
        self._tell(
            Notice("info", "on a host without that file, leave out --token-file: it asks for the word in the file")
        )

    def on_tick(self, engine: Conducted) -> None:
        """A few times a second."""
        if self._commands is None:
            return
        for news in self._commands.news():
            match news:
                case Said(label, text):
                    self._said(label, text)
                case Ended(label, status) if not self._ending:
                    self._ended(engine, label, status)
        if self._commands.closed and self._commands.running and not self._ending:
            self._ending = True
            self._tell(Notice("error", "what launched the nodes has ended; so does the run"))
            engine.stop()

    def _said(self, label: str, text: str) -> None:
        words = text.strip().removeprefix(_ENGINE)
        if words:
            self._last[label] = words
            self._tell(Notice("warning", f"{label}: {words}" if label else words))

    def _ended(self, engine: Conducted, label: str, status: int | None) -> None:
        how = "was ended" if status is None else f"ended with status {status}"
        said = f": {self._last[label]}" if label in self._last else ""
        if not self._all_joined:
            engine.fail(OneLineError(f"{label}: what started its nodes {how}{said}", _EXIT_FAILED))
        elif status != 0:
            self._tell(Notice("warning", f"{label}: what started its nodes {how}; the run goes on as it can"))

    def close(self) -> None:
        """The coordinator has ended: so do all nodes."""
        if self._left is not None:
            self._left.unlink(missing_ok=True)
        if self._commands is not None:
            for news in self._commands.end():
                if isinstance(news, Said) and not self._ending:
                    self._said(news.label, news.text)
            self._commands = None
