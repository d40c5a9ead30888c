"""Built events as a source: MEP files in, the same bytes out."""

from pathlib import Path
from typing import Any

import pytest
from make_formats import FIRST, N, complete_mep
from support import Run, Start, check_accounting, mep_check
from transports import ONE_THREAD, SHARED_MEMORY

MEPS = [complete_mep(FIRST + N * index) for index in range(20)]


def rebuild(start: Start, source: Path, built: Path, **more: Any) -> Run:
    settings = {key.replace("__", "."): value for key, value in more.items()}
    return start(
        {
            "source.kind": "mfp",
            "source.path": source,
            "sink.kind": "mep",
            "sink.path": built,
            "run.nodes": 2,
            **settings,
        }
    )


def meps_of(folder: Path) -> list[bytes]:
    """In the order of their events; all are of one size, and begin with their MEP's header."""
    data = b"".join(path.read_bytes() for path in folder.glob("*.mep"))
    size = int.from_bytes(data[4:8], "little") * 4
    first_event = int.from_bytes(data[16:20], "little") * 4  # offset of the first MFP
    whole = [data[at : at + size] for at in range(0, len(data), size)]
    return sorted(whole, key=lambda mep: int.from_bytes(mep[first_event + 8 :][:8], "little"))


@pytest.mark.parametrize(
    ("files", "transport"),
    [("one", SHARED_MEMORY), ("one-each", ONE_THREAD), ("two-builders", ONE_THREAD)],
)
def test_events_are_built_again_byte_for_byte(start: Start, tmp_path: Path, files: str, transport: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder
    if files == "one":
        path = folder / "all.mep"
        path.write_bytes(b"".join(MEPS))
    elif files == "one-each":
        for index, mep in enumerate(MEPS):
            (folder / f"{index:06}.mep").write_bytes(mep)
    else:
        for part in range(2):
            (folder / f"{part}-0-0.mep").write_bytes(b"".join(MEPS[part::2]))
    run = rebuild(start, path, tmp_path / "built", transport__name=transport)
    assert run.finish() == 0, run.story()
    result = run.result()
    check_accounting(result)
    assert result["complete_events"] == N * len(MEPS)
    assert meps_of(tmp_path / "built") == MEPS
    checked = mep_check(tmp_path / "built")
    assert checked.returncode == 0, checked.stdout


def test_what_is_no_source_is_one_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "torn.mep").write_bytes(b"".join(MEPS)[:-8])
    run = rebuild(start, tmp_path / "torn.mep", tmp_path / "built")
    assert run.finish() == 2, run.story()
    (line,) = run.errors
    assert "source.path" in line
    assert f"torn.mep at byte {len(MEPS[0]) * (len(MEPS) - 1)}: MEP: packet of {len(MEPS[0])} bytes, but only" in line
