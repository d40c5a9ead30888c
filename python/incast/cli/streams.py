"""Standard output and standard error that can end nothing: who watches a run may go away, and the run goes on.

What cannot be written is left out. At the end `trouble` says whether that was more than a reader who had seen enough.
"""

import errno
import io
import os
import select
import sys
from typing import Any, TextIO

# A closed pipe, a closed terminal, a closed descriptor: nobody is there to read.
_NOBODY_READS = (errno.EPIPE, errno.EIO, errno.EBADF)


class _Patient(io.FileIO):
    """A descriptor whose errors are kept, not raised."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Of what cannot be written, all bytes are counted as written."""
        try:
            written = super().write(data)
        except OSError as error:
            self.error = self.error or error
            return memoryview(data).nbytes
        if written is None:  # somebody made it one that does not block
            select.select([], [self], [])
            return 0
        return written


class Streams:
    """In the place of `sys.stdout` and `sys.stderr`."""

    def __init__(self) -> None:
        """Also opens what is closed of descriptors 0, 1 and 2, so that no other file gets their numbers."""
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)
        self._output, self._errors = _Patient(1, "wb", closefd=False), _Patient(2, "wb", closefd=False)
        sys.stdout = _text(self._output, sys.stdout, by_line=self._output.isatty())
        sys.stderr = _text(self._errors, sys.stderr, by_line=True)

    def trouble(self) -> str | None:
        """Why standard output does not hold all that was said; None if it does, or nobody reads it any more."""
        sys.stdout.flush()
        error = self._output.error
        return None if error is None or error.errno in _NOBODY_READS else error.strerror


def _text(raw: _Patient, before: TextIO | None, *, by_line: bool) -> TextIO:
    encoding = "utf-8" if before is None else before.encoding
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=by_line)
