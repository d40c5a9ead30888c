"""`incast mep split`, `merge` and `sources`: the same packets in other files, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from incast.base.files import named, new_file, remove_files
from incast.base.words import counted
from incast.data import mep as mep_files
from incast.formats import FormatError, mfp_name


@dataclass(frozen=True)
class Rearranged:
    """What was written where."""

    output: Path
    files: int
    meps: int
    bytes: int

    def lines(self) -> list[str]:
        """The summary for a person."""
        return [f"{self.output}: {counted(self.meps, 'MEP')}, {self.bytes} bytes in {counted(self.files, 'file')}"]


def split(path: Path, folder: Path, meps_per_file: int = 1) -> Rearranged:
    """Writes `000000.mep` and so on into a new or empty folder, each with `meps_per_file` MEPs or, the last, fewer.

    For readers that take one MEP of a file. Of a folder with manifests each committed MEP is written once.
    """
    if meps_per_file < 1:
        raise FormatError(f"{meps_per_file} MEPs in a file, expected at least 1")
    files = meps = size = 0
    with _new_folder(folder), ExitStack() as last:
        for mep in mep_files.read(path):
            if meps % meps_per_file == 0:
                last.close()
                file = folder / f"{files:06}.mep"
                last.enter_context(named(file))
                out = last.enter_context(file.open("wb"))
                files += 1
            meps += 1
            size += out.write(mep.packet.tobytes())
        if not meps:
            raise FormatError(f"{path}: there is no MEP in it")
    return Rearranged(folder, files, meps, size)


def merge(paths: Sequence[Path], file: Path) -> Rearranged:
    """Writes the MEPs of files and folders into one new file, in the order of their events, none of them twice."""
    meps = mep_files.in_order(paths)
    size = 0
    with new_file(file) as out:
        for _, mep in meps:
            size += out.write(mep.packet.tobytes())
    return Rearranged(file, 1, len(meps), size)


def sources(paths: Sequence[Path], folder: Path) -> Rearranged:
    """Writes the MFPs of MEPs as `source-<id>.mfp` into a new or empty folder: what `incast run --source` reads."""
    meps = mep_files.in_order(paths)
    size = 0
    with _new_folder(folder), ExitStack() as stack:
        outs: dict[int, BinaryIO] = {}
        for path, mep in meps:
            ids = Counter(mfp.source for mfp in mep.mfps)
            if len(ids) < len(mep.mfps):
                twice = ids.most_common(1)[0][0]
                raise FormatError(f"{path}: events from {mep.first_event} on: source {twice} is there more than once")
            for mfp in mep.mfps:
                if mfp.source not in outs:
                    file = folder / mfp_name(mfp.source)
                    stack.enter_context(named(file))
                    outs[mfp.source] = stack.enter_context(file.open("wb"))
                size += outs[mfp.source].write(mfp.packet.tobytes())
    return Rearranged(folder, len(outs), len(meps), size)


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """All that is to be in it, or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FormatError(f"{folder}: is not empty; allowed: a new or an empty folder")
    try:
        yield
    except BaseException:
        remove_files(folder, [file.name for file in folder.iterdir()])
        raise
