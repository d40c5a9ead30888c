"""The document of the RapidIO comparisons: from tables as scans leave them, with every figure labelled."""

import csv
import json
from pathlib import Path

import pytest
from rio_comparisons import ComparisonError, main, size_of, size_text, write_document

COST = "fabric.hosts.tsi721.message_cost"
BASE = {"status": "complete", "idle": "True", "nodes": "2"}
NET = BASE | {"kind": "net", "net.pattern": "one-to-one", "net.message_size": "4KiB", "throughput_bytes_per_s": "1e9"}
RUN = BASE | {"kind": "run", "protocol.mfp_size": "64KiB", "goodput_without_self_bytes_per_s": "2e9"}


def write_table(output: Path, name: str, rows: list[dict[str, str]]) -> None:
    (output / name).mkdir(parents=True)
    with (output / name / "table.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    output = tmp_path / "output"
    over = {"transport.rio.link": "tsi721"}
    write_table(
        output,
        "rio-acknowledgement",
        [
            NET | over | {"transport.rio.notice": "cm"},
            NET | over | {"transport.rio.notice": "cm", "status": "too long"},
        ],
    )
    everybody = {"net.pattern": "all-to-all", "nodes": "4", "idle": "False", "throughput_bytes_per_s": "4e9"}
    write_table(output, "rio-buffer-size", [NET | over, NET | over | everybody])
    write_table(output, "rio-old-limits", [RUN | over | {"transport.rio.limits": "old"}])
    write_table(output, "rio-stop-and-wait-simulated", [NET | {COST: "0us"}])
    write_table(output, "rio-buffer-size-simulated", [NET | {COST: "426us", "net.message_size": "128MiB"}])
    limits = [RUN | {COST: "0us", "protocol.credits": "2", "protocol.mfp_size": size} for size in ("64KiB", "4MiB")]
    write_table(output, "rio-old-limits-simulated", limits)
    test = {"link": "none", "clients": 1, "test": "write, acknowledged by CM", "bytes": 4096}
    (output / "perf.json").write_text(
        json.dumps(
            {
                "conditions": {"cpu": "a CPU", "cores": 2, "kernel": "6", "date": "2026-11-22T00:00:00Z"},
                "rows": [test | {"repeat": repeat, "bytes_per_s": repeat * 1e9} for repeat in (1, 2, 3)],
            }
        )
    )
    return output


def test_measured_and_simulated_figures_are_labelled(figures: Path, tmp_path: Path) -> None:
    document = tmp_path / "comparisons.md"
    write_document(figures, document)
    text = document.read_text(encoding="utf-8")
    assert "not idle in 1 of 4 readings" in text
    rows = [line for line in text.splitlines() if line.startswith(("| 2 |", "| 4 |"))]
    assert rows
    assert all(("measured" in row) != ("SIMULATED" in row) for row in rows)
    assert "| 2 | rDMA write, bare fabric, measured | 16 |" in rows, "the median of the repeats"
    assert "| 4 | emulated Tsi721, measured | 8 | - |" in rows, "of a node where everybody sends"
    assert "| 2 | 2 MB x 8, 0us a write, SIMULATED | 8 |" in rows, "what the old limits have no room for is left out"
    assert {each.name for each in tmp_path.glob("*.png")} == {
        f"comparisons-{part}.png" for part in ("data", "acknowledgement", "api", "buffers", "limits")
    }


def test_what_is_missing_is_said(figures: Path, tmp_path: Path) -> None:
    (figures / "rio-buffer-size/table.csv").unlink()
    with pytest.raises(ComparisonError, match=r"no rio-buffer-size; take it with --measure"):
        write_document(figures, tmp_path / "comparisons.md")
    with pytest.raises(SystemExit):
        main([str(figures)])


def test_sizes() -> None:
    assert [size_text(size_of(text)) for text in ("4KiB", "128MiB")] == ["4 KiB", "128 MiB"]
    with pytest.raises(ComparisonError, match="a size is 4kB"):
        size_of("4kB")
