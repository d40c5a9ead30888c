"""`incast reproduce`: the classes of rows, how they are judged, what is kept, and the document made of them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from incast.base.errors import OneLineError
from incast.bridges.zmq_program import Reading as ZmqReading
from incast.engine.fabric_sources import parameters
from incast.reproduce.bounds import AS_IN_THE_FILE, Unknown
from incast.reproduce.document import rows_of_document, value_text
from incast.reproduce.laboratory import Laboratory
from incast.reproduce.model import (
    OFF,
    OK,
    RANGE,
    Experiment,
    Fabrics,
    Finding,
    Row,
    compare,
    predict,
    shape,
    statement,
    statements,
)
from incast.reproduce.root import finding_of_buffers as buffers_finding
from incast.reproduce.root import finding_of_messages as messages_finding
from incast.reproduce.rows import ROWS
from incast.reproduce.zeromq import finding_of as zeromq_finding
from incast.scan.journal import make_way

from tests.lab.conftest import InProcess

ROOT = Path(__file__).resolve().parents[3]
FIELDS = [
    "id", "source", "conditions", "published", "ours", "relative_error", "kind", "null_model_error", "status",
]  # fmt: skip
# What was laid down before anything was run; a class is never improved. Row 14 was fitted once, by the bandwidth of a
# memory; since that comes from a document nothing is.
CLASSES = {
    "1a": "arithmetic", "1b": "input", "2a": "input", "2b": "shape", "3": "input", "4": "input", "5": "shape",
    "6": "shape", "6b": "shape", "7a": "fitted", "7b": "shape", "9": "shape", "10": "predicted", "11": "predicted",
    "12": "predicted", "13": "shape", "13b": "shape",
    "14": "predicted", "15": "shape", "16a": "shape", "16b": "shape", "PFC": "shape",
    "17": "requirement", "17b": "requirement",
    "18": "bound", "18b": "bound", "19": "input", "19b": "bound", "20": "bound",
    "21": "bound", "22": "arithmetic",
    "23": "predicted", "24": "bound", "27": "shape", "29": "requirement", "31": "requirement", "8": "shape",
}  # fmt: skip


def test_classes_are_those_laid_down() -> None:
    kinds = {row.id: row.kind for row in ROWS}
    assert len(kinds) == len(ROWS), "ids are unique"
    assert {key: kinds.get(key) for key in CLASSES} == CLASSES
    assert {kinds[key] for key in kinds.keys() - CLASSES.keys()} == {"requirement"}
    assert {row.number for row in ROWS} == {*map(str, range(1, 33)), "PFC"}, "every row of the published table"


def test_predictions_and_shapes_vary_what_is_unknown_or_say_why_not() -> None:
    for row in ROWS:
        if row.kind in ("predicted", "shape") and row.experiments:
            assert bool(row.unknowns) != bool(row.nothing_unknown), row.id


def test_runs_of_a_row_that_have_one_name_are_one_run() -> None:
    for row in ROWS:
        runs: dict[str, Experiment] = {}
        for experiment in row.experiments:
            assert runs.setdefault(experiment.name, experiment) == experiment, (row.id, experiment.name)


def test_a_row_that_is_a_range_varies_what_is_unknown() -> None:
    unknowns = {row.id: row.unknowns for row in ROWS}
    text = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    ranges = [row_id for row_id, _, _, status in rows_of_document(text) if status == RANGE]
    assert [row_id for row_id in ranges if not unknowns[row_id]] == []


def _cells_of_document() -> dict[str, list[str]]:
    """By row, the cells behind its id: class, source, conditions, published, ours, error, null model, status."""
    text = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    table = text.partition("| row | class | source |")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {first: rest for first, *rest in cells}


def _percent(cell: str) -> float:
    return float(cell.removesuffix(" %"))


def test_what_the_document_calls_ok_or_a_range_is_so_by_its_class() -> None:
    document = _cells_of_document()
    assert document.keys() == {row.id for row in ROWS}
    for row_id, (kind, _, _, published, _, error, null, status) in document.items():
        if kind == "predicted":
            assert _percent(null) > 0, row_id
        if status == OK and kind in ("arithmetic", "input", "fitted", "predicted"):
            assert _percent(error) <= 5, row_id
        if status == OK and kind == "predicted":
            assert _percent(error) < _percent(null) / 2, row_id
        if status == RANGE and kind == "predicted":
            for low, high in _outcomes(row_id):
                assert any(low <= float(each) <= high for each in published.split(" ... ")), row_id


def _outcomes(row_id: str) -> list[tuple[float, float]]:
    """Between what, as the row's paragraph says, outcomes lie over what is unknown."""
    text = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    paragraph = text.partition(f"\n**{row_id}**, ")[2].partition("\n\n")[0]
    found = re.findall(r"Over what is unknown: ([\d.]+) \.\.\. ([\d.]+);", paragraph)
    assert found or row_id == "23", row_id
    return [(float(low), float(high)) for low, high in found]


def _tried(row: Row, each: Unknown, experiment: Experiment) -> bool:
    """Whether that run changes it, or runs on a file that says so."""
    if each.setting:
        return experiment.settings.get(each.setting) in each.values
    if each.fabric in experiment.changes:
        return experiment.changes[each.fabric] in each.values
    try:
        return Fabrics(ROOT / "fabrics").value(experiment.fabric, each.fabric) in each.values
    except KeyError:
        return False


def test_every_bound_is_run_and_has_a_source() -> None:
    for row in ROWS:
        for each in row.unknowns:
            assert each.source, (row.id, each.name)
            assert bool(each.fabric) != bool(each.setting), (row.id, each.name)
            for value in each.values:
                one = replace(each, values=(value,))
                assert any(_tried(row, one, experiment) for experiment in row.experiments), (row.id, each.name, value)


# What says how many ports are used, and which of them share an ASIC; the rest is the device.
_WIRING = {"topology.hosts", "switches.deep.ports_per_asic"}


def test_a_device_has_one_set_of_parameters() -> None:
    """Around it one thing that is unknown is another, within its bounds."""
    for row in ROWS:
        for experiment in row.experiments:
            if experiment.fabric in ("arista-7280cr2k-30", "qfx10000-30c"):
                changes = {key: value for key, value in experiment.changes.items() if key not in _WIRING}
                bounds = {each.fabric: each.values for each in row.unknowns if each.fabric}
                if row.id == "14":
                    assert experiment.changes.keys() >= _WIRING
                else:
                    changes = dict(experiment.changes)
                assert len(changes) <= 1, (row.id, experiment.name)
                assert all(value in bounds[key] for key, value in changes.items()), (row.id, experiment.name)


def test_the_arista_is_not_fitted() -> None:
    kinds = {each.kind for each in parameters((ROOT / "fabrics/arista-7280cr2k-30.toml").read_text(encoding="utf-8"))}
    assert "fitted" not in kinds


def test_rows_say_the_unit_of_their_numbers() -> None:
    for row in ROWS:
        if isinstance(row.published, float | list):
            assert row.conditions.rpartition("; ")[2] in {"Gb/s", "MB/s", "GB/s", "Tb/s", "%", "us"} or row.id == "14"


def test_the_document_is_in_step_with_the_rows() -> None:
    text = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    written = rows_of_document(text)
    assert [each[:3] for each in written] == [(row.id, row.kind, value_text(row.published)) for row in ROWS], (
        "write it anew: incast reproduce --all --write-docs docs/reproduction.md"
    )
    for row, (_, _, _, status) in zip(ROWS, written, strict=True):
        judged, needs = status in (OK, OFF, RANGE), status.startswith("needs ")
        if row.is_measured:
            assert judged or needs, "it depends on what is built"
        else:
            assert judged if row.experiments or row.kind == "arithmetic" else needs


def test_a_prediction_must_beat_the_null_model() -> None:
    assert predict(95.0, 94.8, 98.0).status == OK
    assert predict(97.9, 94.8, 98.0).status == OFF, "within 5 %, and no better than the idle network"
    assert predict(89.0, 94.8, 98.0).status == OFF, "more than 5 % off"
    assert predict(89.0, 94.8, 98.0, [80.0, 96.0]).status == RANGE
    assert predict(89.0, 94.8, 98.0, [80.0, 90.0]).status == OFF
    assert predict(94.4, 94.8, 98.0, [94.0, 95.0]).status == OK
    assert predict(94.4, 94.8, 98.0, [55.8, 95.0]).status == RANGE, "good by itself, but not over what is unknown"
    assert predict(94.4, 94.8, 98.0, [55.8, 94.5]).status == OFF, "what was published is not among the outcomes"
    found = predict(96.0, 100.0, 110.0)
    assert found.relative_error == pytest.approx(0.04)
    assert found.null_model_error == pytest.approx(0.1)


def test_other_classes() -> None:
    assert compare(14.84, 14.8).status == OK
    assert compare(12.0, 14.8).status == OFF
    assert compare(12.0, 14.8).null_model_error is None
    assert [shape(1.0, holds).status for holds in ([True, True], [True, False], [False])] == [OK, RANGE, OFF]
    found = statement(1.0, {"it rises": True, "it stays below 2": False}, "More.")
    assert (found.status, found.remarks) == (OFF, ("Holds: it rises.", "Does not hold: it stays below 2.", "More."))
    assert statement(1.0, {"it rises": True}).status == OK


def test_a_shape_over_several_networks() -> None:
    good, bad = {"it rises": True, "it stays below 2": True}, {"it rises": True, "it stays below 2": False}
    cases = [(good, good, OK), (good, bad, RANGE), (bad, good, RANGE), (bad, bad, OFF)]
    for first, second, status in cases:
        assert statements(1.0, {AS_IN_THE_FILE.name: first, "other": second}).status == status


def test_json_has_exactly_the_promised_fields(real: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INCAST_ROOT_BRIDGE", str(real.folder))
    said = real("reproduce", "1", "5", "22", "--json", "--output", "out")
    assert said.returncode == 0, said.stderr
    records = json.loads(said.stdout)
    assert [list(record) for record in records] == [FIELDS] * 4
    by_id = {record["id"]: record for record in records}
    assert by_id["1a"]["ours"] == pytest.approx(16 * 256 / 276)
    assert by_id["1b"]["ours"] == pytest.approx(13.4, rel=0.01)
    assert by_id["5"]["status"].startswith("needs ROOT bridge")
    assert by_id["5"]["ours"] is None


def test_zeromq_is_measured_where_its_bridge_is_built(real: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(**microseconds: list[float]) -> Finding:
        by_way = {
            way.replace("_", "-"): [ZmqReading(1.0, 0.0, {"p50": 1e3 * each}) for each in times]
            for way, times in microseconds.items()
        }
        return zeromq_finding(by_way, 0.5)

    found = judged(tcp=[165.0, 330.0, 165.0], rio=[100.0, 200.0, 90.0], rio_tsi721=[150.0, 300.0, 140.0])
    assert (found.ours, found.status) == ("rio +65, rio-tsi721 +10", OK)
    assert found.remarks[2].startswith("MEASURED, not simulated")
    assert "rio +65 to +83 %" in found.remarks[2]
    found = judged(tcp=[10.0, 10.0], rio=[9.0, 11.0], rio_tsi721=[8.0, 8.0])
    assert found.status == OFF, "a range is what the unknown decides, and noise is none"
    assert found.remarks[0] == "Does not hold: rio faster than tcp in every round."
    assert judged(tcp=[10.0, 10.0], rio=[12.0, 11.0], rio_tsi721=[18.0, 18.0]).status == OFF
    monkeypatch.setenv("INCAST_ZMQ", str(real.folder))
    said = real("reproduce", "9", "--output", "out")
    assert said.returncode == 0, said.stderr
    assert "SIMULATED" not in said.stdout
    assert "needs ZeroMQ bridge" in said.stdout
    assert "row 9: Skipped: the ZeroMQ bridge is not built" in said.stdout


def test_root_is_measured_where_its_bridge_is_built() -> None:
    sizes = (1 << 16, 1 << 20, 8 << 20, 32 << 20, 128 << 20)
    rates = {("polled", size): [0.5e9, 1e9, 2e9] for size in sizes} | {("doorbell", size): [1.2e9] for size in sizes}
    rates["polled", 32 << 20] = [1.1e9]
    found = buffers_finding(rates, "MEASURED.")
    assert found.ours == pytest.approx(8.8) and found.status == OK
    assert "1 MiB 8.00 and 9.60" in found.remarks[4]
    assert buffers_finding(rates | {("polled", 1 << 16): [1.2e9]}, "").status == OFF, "not at tens of MB"
    assert buffers_finding(rates | {("polled", 32 << 20): [1.4e9]}, "").status == OFF, "above iperf"
    far = messages_finding({("cm", 4 << 20): [1e8, 2e8], ("cm-ack", 4 << 20): [1e9, 9e8]}, "MEASURED.")
    assert (far.ours, far.status) == ([150.0, 950.0], OK)
    near = messages_finding({("cm", 4 << 20): [1e8, 3e8], ("cm-ack", 4 << 20): [1e9, 9e8]}, "MEASURED.")
    assert near.status == OFF, "in one round of two"


def test_figures_are_kept_and_one_row_is_checked(real: InProcess) -> None:
    kept = real.folder / "out/rows/19b.json"

    def again() -> str:
        said = real("reproduce", "19b", "--output", "out")
        assert said.returncode == 0, said.stderr
        return said.stderr

    assert "spot check" not in again()
    before = json.loads(kept.read_text())["figures"]
    assert "spot check: row 19b" in again()
    assert json.loads(kept.read_text())["figures"] == before

    content = json.loads(kept.read_text())
    content["figures"]["latency of a write"]["throughput_bytes_per_s"] *= 1.001
    kept.write_text(json.dumps(content))
    said = real("reproduce", "19b", "--output", "out")
    assert said.returncode != 0
    assert "throughput_bytes_per_s was" in said.stderr

    kept.write_text(json.dumps(content | {"key": "of another engine"}))
    assert "spot check" not in again(), "figures of another engine are not taken"
    assert json.loads(kept.read_text())["figures"] == before


def test_what_is_wrong_is_one_line_and_status_2(real: InProcess) -> None:
    for words, hint in (
        ([], "which rows"),
        (["99"], "there is no row 99; allowed: 1, 2,"),
        (["1", "--all"], "which rows"),
        (["1", "--write-docs", "x.md"], "--write-docs needs --all"),
        (["1", "--fabrics", "nowhere"], "no fabric files at nowhere"),
    ):
        said = real("reproduce", *words)
        assert (said.returncode, said.stderr.count("\n")) == (2, 1), said.stderr
        assert hint in said.stderr


def test_files_of_a_run_or_a_scan_are_refused_or_removed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    make_way(folder, force=False)
    (folder / "readings" / "0001-1").mkdir(parents=True)
    for name in ("plan.json", "journal.jsonl", "result.json", "notes", "readings/0001-1/result.json"):
        (folder / name).write_text("mine")
    with pytest.raises(OneLineError, match=r"holds plan.json of a run or a scan; allowed: another folder, or --force"):
        make_way(folder, force=False)
    make_way(folder, force=True)
    assert [path.name for path in folder.iterdir()] == ["notes"]


def test_a_run_that_fails_is_named(real: InProcess) -> None:
    row = next(row for row in ROWS if row.id == "19")
    too_many = replace(row.experiments[0], settings={**row.experiments[0].settings, "run.nodes": 9})
    (real.folder / "out").mkdir()
    (real.folder / "out" / "result.json").write_text("of a run")
    with pytest.raises(OneLineError, match=r"holds result.json of a run or a scan; allowed: .* --force"):
        Laboratory(real.folder / "out", ROOT / "fabrics", 1).outcomes([row], fresh=True, say=print)
    with pytest.raises(OneLineError, match="row 19: write: "):
        Laboratory(real.folder / "out", ROOT / "fabrics", 1, force=True).outcomes(
            [replace(row, experiments=[too_many])], fresh=True, say=print
        )


def test_rows_that_are_complete_outlive_a_run_that_fails(real: InProcess) -> None:
    good = next(row for row in ROWS if row.id == "19b")
    other = next(row for row in ROWS if row.id == "19")
    too_many = replace(other.experiments[0], settings={**other.experiments[0].settings, "run.nodes": 9})
    with pytest.raises(OneLineError, match="row 19: write: "):
        Laboratory(real.folder / "out", ROOT / "fabrics", 1).outcomes(
            [good, replace(other, experiments=[too_many])], fresh=True, say=print
        )
    assert (real.folder / "out/rows/19b.json").is_file()
    assert not (real.folder / "out/rows/19.json").exists()
