"""`incast bridge iperf`: what it measures, its tables, its part of the document; no device is made."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from incast.base.errors import OneLineError
from incast.bridges.iperf import PATTERNS, PUBLISHED_CLIENTS, PUBLISHED_PAIRS, cases_of, fairness, measure
from incast.bridges.iperf_program import MANY_TO_ONE, ONE_TO_ONE, Case, Reading, ReadingError, Stream, stream_of
from incast.bridges.iperf_tables import tables
from incast.cli.bridge import print_iperf
from incast.figures.iperf_document import BEGIN, END, write_document
from incast.reproduce.model import Figures
from incast.reproduce.rapidio import IPERF_ROWS, iperf_gbit
from incast.reproduce.rows import ROWS
from rich.console import Console

from tests.lab.conftest import InProcess


class FakeDevices:
    """Each stream carries what is left of the link; the second one twice as much as the others. Three do not work."""

    def take(self, case: Case, seconds: float, warm_up: float) -> Reading:
        assert (seconds, warm_up) == (5, 2)
        if case.streams == 3:
            raise ReadingError("iperf3: no luck")
        rates = [2.0 if index == 1 else 1.0 for index in range(case.streams)]
        total = 14.8e9 / 8 / 20 / 2  # half of what the slower adapter receives
        streams = [Stream(total * rate / sum(rates), 3, 0.012) for rate in rates]
        return Reading(streams, 0.002, dropped_frames=5, marked_frames=1)


def result(most: int = 4) -> dict[str, Any]:
    settings = {"seconds": 5, "warm_up_seconds": 2, "mtu": 65500}
    devices: Any = FakeDevices()
    return measure(devices, cases_of(PATTERNS, most), 2, slowdown=20, settings=settings, say=lambda _: None)


def test_hosts_of_both_patterns() -> None:
    assert Case(ONE_TO_ONE, 3).ends == [(0, 1), (2, 3), (4, 5)]
    assert Case(MANY_TO_ONE, 3).ends == [(1, 0), (2, 0), (3, 0)]
    every = cases_of(PATTERNS, None)
    assert [case.streams for case in every] == [*range(1, 9), *range(1, 16)]
    assert len(PUBLISHED_PAIRS) == 8 and len(PUBLISHED_CLIENTS) == 15
    assert {host for case in every for end in case.ends for host in end} == set(range(16))


def test_fairness_is_jains_index() -> None:
    assert fairness([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert fairness([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert fairness([0.0, 0.0]) == 0.0


def test_what_fails_is_named_and_the_rest_is_measured() -> None:
    whole = result()
    assert whole["unfinished"] == ["3 pairs: iperf3: no luck", "3 clients to one: iperf3: no luck"]
    assert [(each["pattern"], each["streams"]) for each in whole["cases"]] == [
        (pattern, streams) for pattern in PATTERNS for streams in (1, 2, 4)
    ]
    assert whole["readings"] == 12
    assert all(len(each["each_bytes_per_s"]) == 2 for each in whole["cases"])


def test_tables_are_of_the_time_of_the_adapter() -> None:
    pairs, clients = tables(result())
    assert clients.headings == ["clients", "published", "emulated", "lost", "fair", "again", "drops", "ms"]
    # 14.8 / 2 of 14.8 Gb/s; one client is measured by what it may send, 13.4 Gb/s.
    assert clients.rows[0] == ["1", "10.80", "7.40", "44.8 %", "1.000", "3", "5", "10.0"]
    assert clients.rows[1] == ["2", "14.47", "7.40", "50.0 %", "0.900", "6", "5", "10.0"]
    assert pairs.rows[1][:4] == ["2", "10.7..10.9", "2.47..4.93", "72.4 %"]


def test_simulated_figures_stand_beside() -> None:
    whole = result(2) | {"simulated_gbit": {ONE_TO_ONE: [10.98] * 8, MANY_TO_ONE: [10.98, *[14.82] * 14]}}
    pairs, clients = tables(whole)
    assert pairs.headings[2] == clients.headings[2] == "simulated"
    assert [row[2] for row in clients.rows] == ["10.98", "14.82"]


def test_figures_of_rows_are_by_connections() -> None:
    def figures(names: list[str], column: str) -> Figures:
        return Figures({name: {column: 1e9 * number / 8} for number, name in enumerate(names, start=1)})

    pairs = figures([f"{count} pairs" for count in range(1, 9)], "pair_mean_bytes_per_s")
    clients = figures([f"{count} clients" for count in range(2, 16)], "throughput_bytes_per_s")
    assert iperf_gbit({"2b": pairs, "3": clients}) == ([*range(1, 9)], [1, *range(1, 15)])
    assert {row.id for row in ROWS} >= set(IPERF_ROWS)


def test_it_fits_a_terminal_and_the_document(tmp_path: Path) -> None:
    whole = result()
    whole["simulated_gbit"] = {pattern: [10.98] * 15 for pattern in PATTERNS}
    console = Console(file=io.StringIO(), width=80)
    print_iperf(console, whole, tmp_path)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(len(line) for line in lines if line[:1].isdigit() or line.startswith(("pairs", "clients"))) <= 80
    document = tmp_path / "netdev.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_document(document, whole)
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith(f"{END}\nafter\n") and "old" not in text
    assert "| 2 | 14.47 | 10.98 | 7.40 |" in text and "EMULATED" in text and "not measured: 3 pairs" in text
    (tmp_path / "other.md").write_text("nothing")
    with pytest.raises(OneLineError, match="has no lines"):
        write_document(tmp_path / "other.md", whole)


def test_reports_of_iperf3_are_read() -> None:
    end = {
        "streams": [{"sender": {"mean_rtt": 2500}}],
        "sum_sent": {"retransmits": 7},
        "sum_received": {"bits_per_second": 8e6},
    }
    assert stream_of(json.dumps({"end": end})) == Stream(1e6, 7, 0.0025)
    with pytest.raises(ReadingError, match="iperf3: unable to connect"):
        stream_of(json.dumps({"error": "unable to connect", "end": {}}))
    with pytest.raises(ReadingError, match="without a report"):
        stream_of("")


@pytest.mark.parametrize("words", [("--pattern", "all-to-all"), ("--pattern", "one-to-one,one-to-one")])
def test_what_is_wrong_is_one_line(real: InProcess, words: tuple[str, ...]) -> None:
    done = real("bridge", "iperf", *words)
    assert done.returncode == 2
    assert "allowed: a list of one-to-one, many-to-one, each at most once" in done.stderr
