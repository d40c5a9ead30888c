"""What is asked of the compared programs, and what is taken from their results."""

import argparse
import sys
from pathlib import Path
from typing import Any

import programs
import pytest
from incast.formats import _mfp_prefix
from loops import ucx_rate
from programs import Incast, MpiAlltoall, ProgramError
from sizes import chosen_cache, parse_size, parse_sizes
from variants import parse_variant

MIB = 1 << 20


def result(**changes: Any) -> dict[str, Any]:
    """Four RUs and BUs, 100 MEPs in two seconds."""
    nodes = [
        {"roles": f"{n} (RU+BU)", "totals": {"built_goodput_bytes": 1000, "built_self_bytes": 250}} for n in range(4)
    ]
    base = {
        "lost_events": 0,
        "incomplete_events": 0,
        "verify_errors": 0,
        "copied_bytes": 4000,
        "self_traffic": "copy",
        "nodes": nodes,
        "config": {"source": {"sources_per_ru": 1}},
        "window": {"meps": 100, "seconds": 2.0, "goodput_bytes": 4000, "self_bytes": 1000},
        "goodput_bytes_per_s": {"total": 2000.0, "total_without_self": 1500.0},
    }
    return base | changes


def incast(**changes: Any) -> Incast:
    return Incast(engine=Path("incast-node"), seconds=1, warm_up=1, settings={}, **changes)


def test_rates_of_a_result() -> None:
    assert programs.rate_of(result(), "total") == 2000.0
    assert programs.rate_of(result(), "total_without_self") == 1500.0
    # 100 MEPs of 4 sources, of which 3 come from other nodes.
    assert programs.rate_of(result(), "crossing_mfps") == pytest.approx(150.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"lost_events": 1}, "lost_events"),
        ({"incomplete_events": 2}, "incomplete_events"),
        ({"verify_errors": 3}, "verify_errors"),
        ({"copied_bytes": 3999}, "3999 bytes were copied"),
    ],
)
def test_what_is_no_measurement_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ProgramError, match=named):
        incast()._check(result(**changes))


def test_self_traffic_by_pointer_need_not_be_copied() -> None:
    incast()._check(result(self_traffic="pointer", copied_bytes=3000))
    with pytest.raises(ProgramError):
        incast()._check(result(self_traffic="pointer", copied_bytes=2999))


def test_sources_of_all_nodes_exceed_the_cache_four_times() -> None:
    assert programs.source_bytes(16 * MIB, 4) == 16 * MIB
    assert 3 * programs.source_bytes(16 * MIB, 3) >= 64 * MIB
    settings = programs.event_building(
        transport="shm",
        scheme="push",
        mfp_bytes=4096,
        nodes=4,
        cache=16 * MIB,
        self_traffic="copy",
        sink="verify:header",
    )
    assert settings["source.prefill_size"] == f"{16 * MIB}B"
    assert (settings["sink.kind"], settings["sink.verify"]) == ("verify", "header")


@pytest.mark.parametrize("mfp_bytes", [512, 4000, 4096, 65536, MIB, 8 * MIB])
def test_mfps_are_as_large_as_asked_for(mfp_bytes: int) -> None:
    size = programs.fragment_bytes(mfp_bytes)
    # As many as fit, which is what the engine packs, by the package's own reader.
    packets = [_mfp_prefix(n, size > 0xFFFF) + n * size for n in range(1, 65)]
    fitting = [packet for packet in packets if packet <= mfp_bytes]
    assert fitting[-1] > mfp_bytes - 64
    assert len(fitting) >= min(64, mfp_bytes // 256) * 3 // 4
    assert size % 8 == 0, "nothing is padded"


def test_streams_are_shared_out() -> None:
    assert programs._shares(12, 1) == [12]
    assert programs._shares(12, 5) == [3, 3, 2, 2, 2]


def test_mpi_is_run_over_the_transport_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    mpi = MpiAlltoall(Path("mpi_alltoall"), 5, 1, 4, 65536, 16 * MIB, MIB, "vader")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    words = " ".join(mpi.command(1))
    assert "--mca btl vader,self" in words
    assert "--mca mpi_yield_when_idle 1" in words
    assert "--allow-run-as-root" not in words
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "--allow-run-as-root" in mpi.command(0)


def test_the_better_way_to_run_mpi_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Stands in for mpirun: faster when it yields.
    fake = tmp_path / "mpirun"
    fake.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "yields = int(sys.argv[sys.argv.index('mpi_yield_when_idle') + 1])\n"
        "print('measuring', flush=True)\n"
        "print(json.dumps({'bytes_per_s_without_self': 100 + yields}))\n",
        encoding="utf-8",
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    reading = MpiAlltoall(Path("mpi_alltoall"), 0.05, 0.01, 4, 65536, MIB, MIB, "vader")()
    assert reading.rate == 101
    assert reading.details["tried"] == {"0": 100, "1": 101}
    assert len(reading.tried) == 1, "the other one is judged too"


def test_a_program_that_fails_is_one_line(tmp_path: Path) -> None:
    fake = tmp_path / "engine"
    fake.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('run.nodes = 0: out of range')\n", encoding="utf-8")
    fake.chmod(0o755)
    with pytest.raises(ProgramError, match=r"status 1: run\.nodes = 0: out of range"):
        Incast(engine=fake, seconds=0.05, warm_up=0.05, settings={})()


def test_sizes() -> None:
    assert [size.bytes for size in parse_sizes("4KiB,1MiB, 100")] == [4096, MIB, 100]
    assert str(parse_size("64KiB")) == "64KiB"
    with pytest.raises(argparse.ArgumentTypeError, match="'1KB' is no size"):
        parse_size("1KB")


@pytest.mark.parametrize(("asked", "expected"), [("judged", 16 * MIB), ("claimed", 300 * MIB), ("1GiB", 1024 * MIB)])
def test_which_cache_is_taken_is_said(asked: str, expected: int) -> None:
    found: dict[str, Any] = {"last_level_cache_claimed_bytes": 300 * MIB, "cores": 2}
    assert chosen_cache(argparse.Namespace(cache=asked), found) == expected
    assert found["last_level_cache_taken_bytes"] == expected
    assert found["sources_cycle_through_bytes"] == 4 * expected


def test_variants_are_settings_or_engines() -> None:
    assert parse_variant("default:") == ("default", None, ())
    assert parse_variant("deep@a/b:x.y=1,z.w=a=b") == ("deep", Path("a/b"), ("x.y=1", "z.w=a=b"))
    for wrong in ("", "deep", ":x.y=1", "deep:x.y"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected NAME"):
            parse_variant(wrong)


@pytest.mark.parametrize("begins", [False, True])
def test_what_failed_beside_the_engine_is_the_reason(tmp_path: Path, begins: bool) -> None:
    note = tmp_path / "pid"
    beside = f"import os, pathlib, sys; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); sys.exit('no numpy')"
    engine = tmp_path / "incast-node"
    engine.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        f"note = pathlib.Path({str(note)!r})\n"
        "while not note.is_file() or not note.read_text(): pass\n"
        "state = pathlib.Path('/proc', note.read_text(), 'stat')\n"
        "while state.is_file() and ') Z ' not in state.read_text(): pass\n"
        + ("""print('{"type":"phase","phase":"measuring"}', flush=True)\n""" if begins else "")
        + "sys.exit('events were not all built')\n"
    )
    engine.chmod(0o755)
    run = Incast(engine=engine, seconds=0.1, warm_up=0, settings={}, beside=((sys.executable, "-c", beside),))
    with pytest.raises(ProgramError, match="no numpy"):
        run.result()


def test_the_rate_of_a_test_of_ucx_is_that_of_all_its_messages() -> None:
    """As UCX 1.13 writes it: a table whose last line has no name, and no frame."""
    frame, names = f"+{'-' * 14}+{'-' * 14}+", "|     Test     | # iterations | 50.0%ile | average | overall |"
    line = "                       20000      0.500     0.100     0.250   26978.71   26000.00      431659      416000"
    assert ucx_rate([frame, names, frame, line], "ucp_put_bw") == 416000
    assert ucx_rate([frame, names, frame, line], "ucp_put_lat") == 4e6
    with pytest.raises(ProgramError, match="tag_lat: no line of results"):
        ucx_rate([frame, names, frame], "tag_lat")
