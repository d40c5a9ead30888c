"""`incast net --basic`: writes and reads beside perftest's programs, here stand-ins that print what those print."""

import json
import os
import stat
from pathlib import Path

import pytest
from incast.base.published import PRINTED
from incast.run.perftest import Reading, bytes_per_s, latency_ns, parse, run_perftest

from tests.conftest import Incast
from tests.test_net import validate

BANDWIDTH = """
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rxe0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 2400.000000 != 1873.463000. CPU Frequency is not max.
 65536      5000             16.50              16.00\t\t     0.030518
---------------------------------------------------------------------------------------
"""
LATENCY = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    """   99% percentile[usec]   99.9% percentile[usec]
Conflicting CPU frequency values detected: 2400.000000 != 1873.463000. CPU Frequency is not max.
 2       1000          1.76           6.12         1.79     \t       1.80        \t0.06   \t\t1.88    \t\t6.12
"""
)
# Listens like a server, or connects like a client, and prints the table as a client does.
PROGRAM = """#!/usr/bin/env python3
import pathlib, socket, sys
port = int(sys.argv[sys.argv.index("-p") + 1])
assert sys.argv[sys.argv.index("-d") + 1] == ("fake1" if sys.argv[-1] == "127.0.0.1" else "fake0")
if sys.argv[-1] != "127.0.0.1":
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(30)
        server.accept()
else:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        print(f"Couldn't connect to 127.0.0.1:{port}")
        sys.exit(1)
    print(pathlib.Path(__file__).with_suffix(".txt").read_text())
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with stand-ins for all four."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat"):
        (folder / name).write_text(PROGRAM)
        (folder / name).chmod(stat.S_IRWXU)
        (folder / f"{name}.txt").write_text(BANDWIDTH if name.endswith("bw") else LATENCY)
    return folder


def test_the_row_below_the_names_counts() -> None:
    reading = Reading(parse(BANDWIDTH), 1.0, 1.0)
    assert (bytes_per_s(reading, "average"), bytes_per_s(reading, "peak")) == (2e9, 2.0625e9)
    reading = Reading(parse(LATENCY), 1.0, 1.0)
    assert [latency_ns(reading, which) for which in ("min", "typical", "max")] == pytest.approx([1760, 1790, 6120])
    assert parse("Couldn't connect to 127.0.0.1") == {}
    assert parse("") == {}


def test_megabytes_of_perftest_are_of_two_to_the_twentieth() -> None:
    text = BANDWIDTH.replace("Gb/sec", "MB/sec").replace("16.50", "0.00")
    reading = Reading(parse(text), 1.0, 1.0)
    assert bytes_per_s(reading, "average") == 16 * 1048576
    assert bytes_per_s(reading, "peak") is None  # 0: not looked for


def test_a_table_of_four_columns(real_incast: Incast, programs: Path) -> None:
    real_incast.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    limits = ("--outstanding", "8", "--sends", "4")  # of bandwidth, and of writes
    quick = ("--transport", "inproc", "--duration", "30ms", "--warm-up", "0s", "--working-set", "1MiB", *limits)
    done = real_incast(
        "net", "--basic", *quick, "--perftest", "fake0,fake1", "--perftest-options", "-x 1", "--output", "out"
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((real_incast.folder / "out" / "result.json").read_text())
    validate(result)
    published, ours, perftest, simulated = result["columns"]
    mean, peak, *times = PRINTED["read"]
    assert [published["read"][key] for key in ("mean", "peak")] == [mean * 1e6, peak * 1e6]
    assert [published["read"][key] for key in ("min", "typical", "max")] == [time * 1e3 for time in times]
    assert perftest["what"] == "fake0,fake1"
    assert perftest["write"]["mean"] == 2e9
    assert perftest["read"]["typical"] == 1790
    assert perftest["write"]["cpu_cores"] > 0
    for column in (ours, simulated):
        for operation in ("write", "read"):
            figures = column[operation]
            assert 0 < figures["min"] <= figures["typical"] <= figures["max"]
            assert figures["mean"] > 0
    # What the adapter takes from host memory is the model's input; a read crosses the network twice.
    assert simulated["write"]["mean"] == pytest.approx(2.581e9, rel=0.05)
    assert 1.5 < simulated["read"]["typical"] / simulated["write"]["typical"] < 2.5
    again = real_incast("net", "--basic", *quick, "--output", "out")
    assert (again.returncode, "holds result.json of an earlier run" in again.stderr) == (2, True)
    words = [line.split() for line in done.stdout.splitlines()]
    assert ["write,", "mean", "2.58", "GB/s"] in [line[:4] for line in words]
    assert max(len(line) for line in done.stdout.splitlines() if "  " in line) <= 80


def test_what_the_engine_refuses_is_one_line(real_incast: Incast) -> None:
    done = real_incast("net", "--basic", "--transport", "pigeon")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "transport.name = pigeon" in done.stderr
    assert list(real_incast.folder.iterdir()) == []


def test_what_is_not_there_is_said(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("incast.run.perftest.DEVICES", programs / "nowhere")
    assert run_perftest(None, {"bandwidth": 1, "latency": 1}).reason.startswith("no RDMA device")
    monkeypatch.setenv("PATH", str(programs))
    (programs / "ib_write_lat").unlink()
    reason = run_perftest("mlx5_0", {"bandwidth": 1, "latency": 1}).reason
    assert reason == "ib_write_lat is not there; install the package perftest"


def test_a_program_that_fails_gives_its_last_line(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (programs / "ib_write_bw").write_text("#!/bin/sh\necho IB device mlx5_0 not found\nexit 1\n")
    found = run_perftest("mlx5_0", {"bandwidth": 1, "latency": 1})
    assert found.reason == "ib_write_bw: IB device mlx5_0 not found"
