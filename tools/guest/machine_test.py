"""The guest's streams and seats, without a guest."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from guest import machine, run


class Told:
    """A stream, and what it passed on."""

    def __init__(self, mark: str = "mark") -> None:
        self.said = b""
        self.stream = machine.Stream(mark, self.take)

    def take(self, chunk: bytes) -> None:
        self.said += chunk

    def write(self, chunk: bytes) -> bool:
        os.write(self.stream.writer, chunk)
        return self.stream.read()


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    yield told
    told.stream.close()


def test_output_is_passed_on_as_it_comes_and_ends_at_the_mark(told: Told) -> None:
    assert told.write(b"one\n")
    assert told.said == b"one\n"
    assert not told.write(b"two\0mark 7\nno more")
    assert (told.said, told.stream.status) == (b"one\ntwo", 7)


def test_the_mark_may_come_in_pieces(told: Told) -> None:
    for piece in (b"a\0", b"ma", b"rk", b" 1", b"2"):
        assert told.write(piece)
    assert not told.write(b"\n")
    assert (told.said, told.stream.status) == (b"a", 12)


def test_zero_bytes_that_are_no_mark_are_output(told: Told) -> None:
    assert told.write(b"\0\0mark\0")
    assert told.write(b"marked 3\n" + bytes(100))
    assert not told.write(b"\0mark 0\n")
    assert (told.said, told.stream.status) == (b"\0\0mark\0marked 3\n" + bytes(100), 0)


def test_a_guest_that_breaks_off_has_no_status(told: Told) -> None:
    assert told.write(b"half\0mar")
    told.stream.close_writer()
    assert not told.stream.read()
    assert (told.said, told.stream.status) == (b"half\0mar", None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_two_may_sit_down_and_leave_nothing(folder: Path) -> None:
    with machine.seat("x") as (first, place), machine.seat("x") as (second, same):
        assert (first, second, place) == (1, 2, same)
        assert place.stat().st_mode & 0o777 == 0o700
        with pytest.raises(machine.GuestError, match="two guests of the peer 'x' run already"), machine.seat("x"):
            pass
        with machine.seat("y") as (other, _):
            assert other == 1
    assert list(folder.iterdir()) == []


def test_a_seat_is_free_again(folder: Path) -> None:
    with machine.seat("x") as (first, _):
        with machine.seat("x") as (second, _):
            pass
        with machine.seat("x") as (third, _):
            assert (first, second, third) == (1, 2, 2)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cpus", "0"], "--cpus 0: from 1 to 64"),
        (["--memory", "2"], "--memory 2: a number of MiB or GiB"),
        (["--peer", "a/b"], "--peer a/b: at most 32 letters"),
        (["--timeout", "0"], "--timeout 0: more than 0 seconds"),
    ],
)
def test_options_out_of_range(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.arguments([*words, "--", "true"])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_words_behind_the_dashes_are_the_commands() -> None:
    chosen = run.arguments(["--cpus", "4", "--", "ls", "--cpus", "-l"])
    assert (chosen.cpus, chosen.command) == (4, ["ls", "--cpus", "-l"])


def test_the_clock_counts() -> None:
    khz = machine.tsc_khz()
    assert khz == 0 or 100_000 < khz < 10_000_000
