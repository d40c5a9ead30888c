"""Counters of ports, as a line each in the diagnosis and in the summary."""

import io
from pathlib import Path
from typing import Any

from incast.evidence.diagnosis import diagnose
from incast.evidence.port_signs import SIGNS, port_signs
from incast.run.summary import limit_rows
from rich.console import Console

ROOT = Path(__file__).parents[2]


def port(grown: dict[str, int], host: str = "a", device: str | None = "mlx5_0") -> dict[str, Any]:
    number = None if device is None else 1
    return {"host": host, "device": device, "port": number, "interface": "eth2", "grown": grown}


def test_what_moved_and_says_something_is_a_line() -> None:
    result = {"ports": [port({"out_of_sequence": 12, "rx_bytes": 10**9, "rx_prio3_pause": 4})]}
    assert port_signs(result) == (
        "mlx5_0 port 1: out_of_sequence +12: packets missing in what came: lost on the way",
        "mlx5_0 port 1: rx_prio3_pause +4: pauses",
    )
    assert port_signs({"ports": [port({"rx_packets": 5})]}) == ()
    assert port_signs({"ports": []}) == port_signs({}) == ()


def test_hosts_are_told_apart_and_interfaces_stand_for_themselves() -> None:
    result = {"ports": [port({"np_cnp_sent": 1}), port({"rx_dropped": 2}, "b", None)]}
    first, second = port_signs(result)
    assert first.startswith("a, mlx5_0 port 1: np_cnp_sent +1: ")
    assert second.startswith("b, eth2: rx_dropped +2: ")


def test_the_diagnosis_has_them_whatever_limited_the_run() -> None:
    diagnosis = diagnose({"kind": "net", "measure": "latency", "ports": [port({"port_xmit_wait": 7})]})
    assert diagnosis.limited_by == "not known"
    assert diagnosis.to_json()["ports"] == port_signs({"ports": [port({"port_xmit_wait": 7})]})
    screen = Console(file=io.StringIO(), width=120)
    for label, text in limit_rows(diagnosis):
        screen.print(label, text)
    assert isinstance(screen.file, io.StringIO)
    assert "ports mlx5_0 port 1: port_xmit_wait +7: ticks with data to send" in screen.file.getvalue()


def test_documented_counters_have_words() -> None:
    section = (ROOT / "docs/running.md").read_text().partition("### Port counters")[2].partition("### Disks")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    names = {word for row in rows for word in row.split("`")[1::2]}
    assert len(names) > 10
    assert names <= SIGNS.keys()
