"""Commands to a run that goes on: its coordinator listens at the socket `control` in the run's directory."""

import json
import os
import socket
from pathlib import Path
from typing import Any

from incast.base.errors import OneLineError
from incast.base.files import reason_of
from incast.run.detached import EXIT_NO_RUN

SOCKET = "control"
_MOST_BYTES = 4096


def command(directory: Path, word: str, node: int, timeout_s: float) -> str:
    """Asks for one thing and waits until it is done.

    word: "out", "in" or "restart". Returns what was done, in words. Raises OneLineError: there is no such run, it
    refused, or it was not done in time; then it may still be done later.
    """
    if not directory.is_dir():
        raise OneLineError(f"{directory}: no such directory; allowed: the --output of a run that goes on", EXIT_NO_RUN)
    try:
        answer = _ask(directory, {"command": word, "node": node}, timeout_s)
    except TimeoutError:
        raise OneLineError(f"{directory}: node {node}: not done within {timeout_s:g} s", EXIT_NO_RUN) from None
    except (FileNotFoundError, ConnectionRefusedError):
        why = "no run takes commands here: it has ended, or its nodes share one process"
        raise OneLineError(f"{directory}: {why}", EXIT_NO_RUN) from None
    except (OSError, ValueError) as error:
        why = reason_of(error) if isinstance(error, OSError) else str(error)
        raise OneLineError(f"{directory / SOCKET}: {why}", EXIT_NO_RUN) from error
    if not answer["ok"]:
        raise OneLineError(f"{directory}: {answer['text']}", EXIT_NO_RUN)
    return str(answer["text"])


def _ask(directory: Path, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    # By a descriptor, as a path to the directory may be longer than the address has room for.
    at = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way:
            way.settimeout(timeout_s)
            way.connect(f"/proc/self/fd/{at}/{SOCKET}")
            way.send(json.dumps(message).encode())
            packet = way.recv(_MOST_BYTES)
    finally:
        os.close(at)
    if not packet:
        raise ValueError("the run ended")
    answer = json.loads(packet)
    if not isinstance(answer, dict) or not {"ok", "text"} <= answer.keys():
        raise ValueError("the answer makes no sense")
    return answer
