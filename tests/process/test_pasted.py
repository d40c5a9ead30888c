"""Every command of the pages for new users works when it is pasted (tools/paste.py)."""

import sys
from pathlib import Path

import paste
import pytest
from support import ROOT


@pytest.fixture
def checkout(engine: Path, tmp_path: Path) -> Path:
    """A folder with what a checkout has after ./run."""
    pytest.importorskip("uproot")
    program = tmp_path / ".venv" / "bin" / "incast"
    program.parent.mkdir(parents=True)
    lines = f"#!/bin/sh\nexport PYTHONPATH='{ROOT / 'python'}' INCAST_NODE='{engine}'\n"
    program.write_text(f'{lines}exec "{sys.executable}" -m incast "$@"\n')
    program.chmod(0o755)
    (tmp_path / "fabrics").symlink_to(ROOT / "fabrics")
    return tmp_path


@pytest.mark.parametrize("page", ["README.md", "docs/running.md"])
def test_every_command_works(page: str, checkout: Path) -> None:
    assert len(paste.commands((ROOT / page).read_text())) > 15
    assert paste.paste_page(page, checkout) == []


def test_a_command_that_fails_is_told(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "page.md").write_text("# Page\n\n```\nincast -V\nincast settings       # all\nincast sing\n```\n")
    monkeypatch.setattr(paste, "ROOT", checkout)
    found = paste.paste_page("page.md", checkout)
    assert len(found) == 1
    assert found[0].startswith("page.md: incast sing\n")


def test_what_is_pasted() -> None:
    page = "```\n./run\n.venv/bin/incast info   # here\n```\n```toml\nincast run\n```\n```sh\nincast run --web\n```\n"
    assert paste.commands(page) == [".venv/bin/incast info", "incast run --web"]
    assert paste.fitted("incast report incast-results/DIR").startswith("incast report incast-results/")
