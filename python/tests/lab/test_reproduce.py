"""`incast reproduce`: the classes of rows, how they are judged, what is kept, and the document made of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from incast.base.errors import OneLineError
from incast.reproduce.document import rows_of_document, value_text
from incast.reproduce.laboratory import Laboratory
from incast.reproduce.model import OFF, OK, RANGE, compare, predict, shape, statement
from incast.reproduce.rows import ROWS
from incast.scan.journal import make_way

from tests.lab.conftest import InProcess

ROOT = Path(__file__).resolve().parents[3]
FIELDS = [
    "id", "source", "conditions", "published", "ours", "relative_error", "kind", "null_model_error", "status",
]  # fmt: skip
# What was laid down before anything was run; a class is never improved.
CLASSES = {
    "1a": "arithmetic", "1b": "input", "2a": "input", "2b": "shape", "3": "input", "4": "input", "5": "shape",
    "6": "shape", "7a": "fitted", "7b": "shape", "9": "shape", "10": "predicted", "11": "predicted",
    "12": "predicted", "13": "shape", "13b": "shape",
    "14": "fitted", "15": "shape", "16a": "shape", "16b": "shape", "PFC": "shape",
    "17": "requirement", "18": "bound", "18b": "bound", "19": "input", "19b": "bound", "20": "bound",
    "21": "bound", "22": "arithmetic",
    "23": "predicted", "29": "requirement", "31": "requirement",
}  # fmt: skip


def test_classes_are_those_laid_down() -> None:
    kinds = {row.id: row.kind for row in ROWS}
    assert len(kinds) == len(ROWS), "ids are unique"
    assert {key: kinds.get(key) for key in CLASSES} == CLASSES
    assert {kinds[key] for key in kinds.keys() - CLASSES.keys()} == {"requirement"}
    assert {row.number for row in ROWS} == {*map(str, range(1, 32)), "PFC"}, "every row of the published table"


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
    assert all(
        status in (OK, OFF, RANGE) if row.experiments or row.kind == "arithmetic" else status.startswith("needs ")
        for row, (_, _, _, status) in zip(ROWS, written, strict=True)
    )


def test_a_prediction_must_beat_the_null_model() -> None:
    assert predict(95.0, 94.8, 98.0).status == OK
    assert predict(97.9, 94.8, 98.0).status == OFF, "within 5 %, and no better than the idle network"
    assert predict(89.0, 94.8, 98.0).status == OFF, "more than 5 % off"
    assert predict(89.0, 94.8, 98.0, [80.0, 96.0]).status == RANGE
    assert predict(89.0, 94.8, 98.0, [80.0, 90.0]).status == OFF
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


def test_json_has_exactly_the_promised_fields(real: InProcess) -> None:
    said = real("reproduce", "1", "5", "22", "--json", "--output", "out")
    assert said.returncode == 0, said.stderr
    records = json.loads(said.stdout)
    assert [list(record) for record in records] == [FIELDS] * 4
    by_id = {record["id"]: record for record in records}
    assert by_id["1a"]["ours"] == pytest.approx(16 * 256 / 276)
    assert by_id["1b"]["ours"] == pytest.approx(13.4, rel=0.01)
    assert by_id["5"]["status"].startswith("needs ROOT bridge")
    assert by_id["5"]["ours"] is None


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
