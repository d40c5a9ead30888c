"""The rules for rooms see what they are for."""

from pathlib import Path

import pytest
from architecture import BEGIN, END, check_architecture, levels, read_rooms, table

LOW = "# What is below.\nincast_library(low SOURCES low.cpp)\n"
HIGH = "# What is above.\nincast_library(high COLD\n    SOURCES high.cpp\n    DEPENDS low fmt::fmt)\n"


def tree(root: Path, low: str = LOW, high: str = HIGH, source: str = '#include "low/low.h"\n') -> Path:
    for folder, rooms in (("low", low), ("high", high)):
        (root / "src" / folder).mkdir(parents=True)
        (root / "src" / folder / "CMakeLists.txt").write_text(rooms, encoding="utf-8")
    (root / "src/low/low.h").write_text("#pragma once\n", encoding="utf-8")
    (root / "src/high/high.cpp").write_text(source, encoding="utf-8")
    (root / "src/low/low_test.cpp").write_text('#include "high/high.h"\n', encoding="utf-8")
    (root / "docs").mkdir()
    (root / "docs/architecture.md").write_text(f"{BEGIN}\n{table_of(root)}\n{END}\n", encoding="utf-8")
    return root


def table_of(root: Path) -> str:
    rooms = read_rooms(root)
    return table(rooms) if len(levels(rooms)) == len(rooms) else ""


def test_a_tree_in_order_has_no_findings(tmp_path: Path) -> None:
    assert list(check_architecture(tree(tmp_path))) == []
    assert "| 1 | `high` | What is above. | low |" in (tmp_path / "docs/architecture.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"low": LOW.replace("low.cpp", "low.cpp DEPENDS high")}, "circle"),
        ({"source": ""}, "high depends on low and includes nothing of it"),
        ({"high": HIGH.replace("low fmt", "fmt")}, "high does not depend on low"),
        ({"high": HIGH.replace("# What is above.\n", "")}, "a comment above incast_library(high"),
    ],
)
def test_what_is_out_of_order_is_said(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    assert any(said in f"{f.rule}: {f.hint}" for f in check_architecture(tree(tmp_path, **changed)))


def test_a_document_of_another_tree_is_said(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "docs/architecture.md").write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    assert [f.rule for f in check_architecture(tmp_path)] == ["rooms"]
