"""Filters in processes of their own: Python functions, and commands that fail."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Run, Start, check_accounting
from transports import ONE_THREAD, SHARED_MEMORY

SETTINGS: dict[str, Any] = {
    "run.nodes": 3,
    "run.events": 4000,
    "protocol.packing": 20,
    "source.fragment_size": 128,
    "source.prefill_size": "1MiB",
    "filter.kind": "command",
}
FUNCTION = """
from incast.filter import FirstStage

def every_third(event: FirstStage) -> bool:
    print("this is no answer")
    mfps = event.mfps()
    assert 0 < len(mfps) < 3, "the first stage has some of the three sources"
    for mfp in mfps.values():
        assert mfp.n_fragments == event.n_events == 20
    return event.mep % 3 == 0

def failing(event: FirstStage) -> bool:
    if event.mep == 50:
        raise ValueError("made to fail")
    return False
"""


@pytest.fixture
def python_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A command to which `:FUNCTION` is to be added."""
    (tmp_path / "own_filter.py").write_text(FUNCTION)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "python"), str(tmp_path)]))
    return f"{shlex.quote(sys.executable)} -m incast.filter own_filter"


def finished(run: Run) -> dict[str, Any]:
    assert run.finish(60) == 0, run.story()
    result = run.result()
    assert result["events"] == 4000  # those rejected are of them
    check_accounting(result)
    return result


@pytest.mark.parametrize("transport", [ONE_THREAD, SHARED_MEMORY])
@pytest.mark.parametrize("scheme", ["push-pull", "pull-pull"])
def test_a_python_function_decides(start: Start, python_filter: str, scheme: str, transport: str) -> None:
    result = finished(
        start(
            {
                **SETTINGS,
                "transport.name": transport,
                "protocol.scheme": scheme,
                "protocol.decision_deadline": "60s",
                "filter.command": f"{python_filter}:every_third",
            }
        )
    )
    assert result["events"] - result["rejected_events"] == 67 * 20  # MEPs 0, 3, .. 198
    assert result["verified"] == "full"


def test_after_its_end_everything_is_accepted(start: Start, python_filter: str) -> None:
    run = start(
        {
            **SETTINGS,
            "transport.name": ONE_THREAD,
            "protocol.scheme": "push-pull",
            "protocol.decision_deadline": "60s",
            "filter.command": f"{python_filter}:failing",
        }
    )
    result = finished(run)
    assert 0 < result["rejected_events"] < 4000
    assert sum(node["totals"]["undecided_meps"] for node in result["nodes"]) > 0
    assert any("from here on every MEP is accepted" in line for line in run.errors)


def test_a_filter_that_says_nothing_is_overruled_by_the_deadline(start: Start) -> None:
    result = finished(
        start(
            {
                **SETTINGS,
                "transport.name": ONE_THREAD,
                "protocol.scheme": "push-pull",
                "protocol.decision_deadline": "20ms",
                "filter.command": "cat >/dev/null",
            }
        )
    )
    assert result["rejected_events"] == 0
