"""Handing fragments to a readout unit of this host, which reads them where they are written (docs/source.md).

    from incast.source import Source

    with Source("daq", 3) as source:
        for event in range(source.total_events):
            space = source.space(4096)  # a writable array of bytes; waits while the readout unit is behind
            size = read_out(space)
            source.commit(event, size)

One program at a time is one of the sources of a run with `source.kind = program`. What it has committed is the readout
unit's. `incast.formats.encode_mfp` and `commit_mfp` hand over many events at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from incast.base.places import CHECKOUT, PACKAGE

LIBRARY_VARIABLE: Final = "INCAST_SOURCE_LIBRARY"

_ENDED: Final = -1
_LOST: Final = -2
_EJECTED: Final = -3
_NOBODY: Final = -4
_TAKEN: Final = -5
_SYSTEM: Final = -7

#: Why there is no fragment, by the names of `incast.formats.FLAG_NAMES`.
_MISSING: Final = {"late": 4, "truncated": 5, "bad-checksum": 6, "desync": 7, "dropped": 8}


class SourceError(RuntimeError):
    """What the library says; `status` is its code (include/incast/source.h)."""

    status = 0


class RunEndedError(SourceError):
    """The run has ended."""


class ReadoutLostError(SourceError):
    """The readout unit's process died."""


class EjectedError(SourceError):
    """The readout unit dropped this program: what it wrote made no sense."""


class NoReadoutError(SourceError):
    """Nobody has that source, under that name, on this host."""


class TakenError(SourceError):
    """Another program is that source."""


_KINDS: Final[dict[int, type[SourceError]]] = {
    _ENDED: RunEndedError,
    _LOST: ReadoutLostError,
    _EJECTED: EjectedError,
    _NOBODY: NoReadoutError,
    _TAKEN: TakenError,
}


class _Info(ctypes.Structure):
    _fields_ = [
        ("run", ctypes.c_uint64),
        ("total_events", ctypes.c_uint64),
        ("most_bytes", ctypes.c_uint64),
        ("node", ctypes.c_uint32),
        ("packing", ctypes.c_uint32),
        ("source", ctypes.c_uint16),
        ("zero", ctypes.c_uint16 * 3),
    ]


def find_library() -> Path:
    """INCAST_SOURCE_LIBRARY, else the one in the package, else that of the checkout's release build."""
    named = os.environ.get(LIBRARY_VARIABLE)
    folders = (PACKAGE / "_engine", CHECKOUT / "build" / "release" / "lib")
    candidates = [Path(named)] if named else [folder / "libincast_source.so.1" for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ImportError(
        f"{candidates[-1]} is not there: build the target source_api, or name another in {LIBRARY_VARIABLE}"
    )


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(find_library()), use_errno=True)
    handle, number = ctypes.c_void_p, ctypes.c_uint64
    for name, result, arguments in (
        ("attach", ctypes.c_int, [ctypes.c_char_p, ctypes.c_uint16, ctypes.c_int, ctypes.POINTER(handle)]),
        ("get_info", ctypes.c_int, [handle, ctypes.POINTER(_Info)]),
        ("space", ctypes.c_int, [handle, number, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]),
        ("commit", ctypes.c_int, [handle, number, ctypes.c_uint8, ctypes.c_uint8, number]),
        ("commit_mfp", ctypes.c_int, [handle, number]),
        ("next_event", number, [handle]),
        ("flush", ctypes.c_int, [handle, ctypes.c_int]),
        ("leave", None, [handle]),
        ("free", None, [handle]),
        ("text", ctypes.c_char_p, [ctypes.c_int]),
    ):
        function = getattr(library, f"incast_source_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


_library = _load()


class _Handle:
    """The library's, freed with the last array that lies in its memory."""

    def __init__(self, name: str, source: int, timeout_ms: int) -> None:
        self.raw = ctypes.c_void_p()
        status = _library.incast_source_attach(name.encode(), source, timeout_ms, ctypes.byref(self.raw))
        if status < 0:
            raise _error(status, f"{name}, source {source}")

    def __del__(self) -> None:
        if self.raw:
            _library.incast_source_free(self.raw)


class Source:
    """A program that is one source of a run. Of one thread."""

    def __init__(self, name: str = "incast", source: int = 0, *, timeout: float | None = 10.0) -> None:
        """Becomes that source, by its number; waits at most `timeout` s for a readout unit (None: for ever)."""
        if not 0 <= source <= 0xFFFF:
            raise ValueError(f"source {source}: expected 0 to 65535")
        self._handle = _Handle(name, source, _in_ms(timeout))
        info = _Info()
        self._check(_library.incast_source_get_info(self._handle.raw, ctypes.byref(info)))
        self.source = source
        self.run = int(info.run)
        self.node = int(info.node)
        #: Events in a MEP: MEP m has those from m times packing on.
        self.packing = int(info.packing)
        #: Of the run: ids from 0 on; 0: without end.
        self.total_events = int(info.total_events)
        #: What `space` gives at most.
        self.most_bytes = int(info.most_bytes)

    @property
    def next_event(self) -> int:
        """The first event of the MEP that is made next: what is below is built, or given up."""
        return int(_library.incast_source_next_event(self._handle.raw))

    def wait_for_space(self, size: int, timeout: float | None = None) -> npt.NDArray[np.uint8] | None:
        """Space for a fragment of up to `size` bytes; None if there is none within `timeout` s (None: waits for ever).

        RunEndedError, ReadoutLostError and EjectedError say that there will be none any more. What was asked for before
        and not committed is given up.
        """
        if size < 0:
            raise ValueError(f"{size} bytes: expected 0 or more")
        place = ctypes.c_void_p()
        # In parts, so that Python sees its signals.
        left = _in_ms(timeout)
        while True:
            part = 200 if left < 0 else min(left, 200)
            status = self._check(_library.incast_source_space(self._handle.raw, size, part, ctypes.byref(place)))
            if status > 0:
                break
            left -= part if left > 0 else 0
            if left == 0:
                return None
        memory: Any = (ctypes.c_uint8 * size).from_address(place.value or 0)
        memory.keeps = self._handle  # mapped as long as an array shows it
        return np.frombuffer(memory, np.uint8)

    def space(self, size: int) -> npt.NDArray[np.uint8]:
        """As `wait_for_space`, however long it takes."""
        found = self.wait_for_space(size)
        assert found is not None
        return found

    def commit(self, event: int, size: int, type_: int = 1) -> None:
        """Hands over the first `size` bytes of the space, as this source's fragment of that event."""
        self._check(_library.incast_source_commit(self._handle.raw, event, type_, 0, size))

    def commit_missing(self, event: int, why: str) -> None:
        """Says why there is no fragment: late, truncated, bad-checksum, desync or dropped."""
        if why not in _MISSING:
            raise ValueError(f"{why}: expected one of {', '.join(_MISSING)}")
        self.space(0)
        self._check(_library.incast_source_commit(self._handle.raw, event, 0, _MISSING[why], 0))

    def commit_mfp(self, size: int) -> None:
        """Hands over the first `size` bytes of the space, which are an MFP of this source (docs/formats.md)."""
        self._check(_library.incast_source_commit_mfp(self._handle.raw, size))

    def send(self, event: int, data: bytes | npt.NDArray[np.uint8], type_: int = 1) -> None:
        """Copies a fragment that lies elsewhere, and hands it over."""
        body = np.frombuffer(data, np.uint8)
        self.space(len(body))[:] = body
        self.commit(event, len(body), type_)

    def flush(self, timeout: float | None = None) -> bool:
        """Waits until all that was committed has been taken; False if it was not in time."""
        left = _in_ms(timeout)
        while True:
            part = 200 if left < 0 else min(left, 200)
            if self._check(_library.incast_source_flush(self._handle.raw, part)) > 0:
                return True
            left -= part if left > 0 else 0
            if left == 0:
                return False

    def close(self) -> None:
        """Leaves in order: what was committed is still taken, and nothing waits for more."""
        _library.incast_source_leave(self._handle.raw)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, status: int) -> int:
        if status < 0:
            raise _error(status, f"source {self.source}")
        return status


def _error(status: int, where: str) -> SourceError:
    text = _library.incast_source_text(status).decode()
    if status == _SYSTEM:
        with contextlib.suppress(ValueError):
            text = f"{text} ({os.strerror(ctypes.get_errno())})"
    error = _KINDS.get(status, SourceError)(f"{where}: {text}")
    error.status = status
    return error


def _in_ms(timeout: float | None) -> int:
    return -1 if timeout is None else max(0, min(2**31 - 1, round(timeout * 1000)))
