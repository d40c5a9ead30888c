"""The measured part of docs/netdev.md, written from a result of `incast bridge iperf`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from incast.base.files import replace_file
from incast.bridges.iperf_tables import conditions, tables
from incast.figures.measured_part import around, markdown

BEGIN = "<!-- iperf: made by incast bridge iperf --write-docs, not to be edited -->"
END = "<!-- end of iperf -->"


def around_measured(path: Path) -> tuple[str, str]:
    """What stands before and behind that part. OneLineError if the file has no such part."""
    return around(path, BEGIN, END)


def write_document(path: Path, result: Mapping[str, Any]) -> None:
    """Replaces that part."""
    before, after = around_measured(path)
    lines = [f"- {line}" for line in conditions(result)]
    if result["readings_not_idle"]:
        lines.append("- **Not idle: a trial, no measurement.** Others used the machine")
    lines += [f"- not measured: {line}" for line in result["unfinished"]]
    for table in tables(result):
        lines += ["", f"{table.title}:", "", *markdown(table)]
    text = "\n".join(lines)
    replace_file(path, f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
