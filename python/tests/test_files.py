"""Files on a full disk: whole or not at all."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from incast.base.errors import OneLineError
from incast.base.files import (
    LineFile,
    leave_file,
    lengthen_file,
    new_file,
    new_folder,
    remove_files,
    replace_file,
    writing_output,
)


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """A limit on the size of files stands for it; Python has it as an error, and no signal."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_lines_are_whole_and_go_on_when_there_is_room(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "lines")
    assert file.append("first\n")
    with full_disk(9):
        assert not file.append("second\n")
        assert file.reason == os.strerror(errno.EFBIG)
        assert (tmp_path / "lines").read_text() == "first\n"
    assert file.append("third\n")
    assert file.missing == 1
    file.close()
    assert (tmp_path / "lines").read_text() == "first\nthird\n"


def test_a_file_is_replaced_whole_or_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace_file(tmp_path / "file", "old")
    with full_disk(2):
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as caught:
            replace_file(tmp_path / "file", "new one")
        assert caught.value.filename == str(tmp_path / "file")
        left = leave_file(tmp_path / "file", "new one")
    assert left == [{"file": "file", "missing": None, "reason": os.strerror(errno.EFBIG)}]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"warning: {tmp_path / 'file'} is not written: {os.strerror(errno.EFBIG)}"


def test_a_file_is_lengthened_in_its_place_where_there_is_no_room_for_two(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    (tmp_path / "file.new").mkdir()  # stands for a disk that has no room for a second file
    lengthen_file(file, "old and new")
    assert file.read_text() == "old and new"
    with full_disk(5), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        lengthen_file(file, "old and new, and more")
    assert file.read_text() == "old and new", "nothing was touched"


def test_a_folder_of_ours_is_nobody_elses(tmp_path: Path) -> None:
    assert [new_folder(tmp_path / "results" / "now").name for _ in range(3)] == ["now", "now-2", "now-3"]


def test_what_is_wrong_with_the_output_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OneLineError) as caught, writing_output(tmp_path / "file" / "out"):
        (tmp_path / "file" / "out").mkdir()
    assert caught.value.exit_status == 2
    assert str(caught.value).startswith(f"--output {tmp_path}/file/out: Not a directory; allowed:")


def test_only_what_is_named_is_removed(tmp_path: Path) -> None:
    for name in ("result.json", "mine"):
        (tmp_path / name).write_text("")
    remove_files(tmp_path, ["result.json", "log.txt"])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    remove_files(tmp_path, ["mine"])
    assert not tmp_path.exists()


def test_a_new_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with full_disk(100), pytest.raises(OSError) as caught, new_file(path) as out:
        out.write(bytes(200))
    assert caught.value.filename == str(path)
    assert not path.exists()
    with new_file(path) as out:
        out.write(b"whole")
    with pytest.raises(FileExistsError), new_file(path):
        raise AssertionError("it is there")
    assert path.read_bytes() == b"whole"
