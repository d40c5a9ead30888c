"""Finding the engine and reading its progress."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from incast.base.errors import EXIT_NO_ENGINE, OneLineError
from incast.engine.program import ENGINE_VARIABLE, find_engine
from incast.engine.progress import NodeSample, Notice, Phase, ResultWritten, Sample, parse_progress


def test_the_environment_names_the_engine(monkeypatch: pytest.MonkeyPatch, fake_engine: Path) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, str(fake_engine))
    assert find_engine() == fake_engine


def test_a_wrong_name_in_the_environment_is_an_error_and_not_another_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, str(tmp_path / "absent"))
    with pytest.raises(OneLineError, match=r"INCAST_NODE=.*absent") as caught:
        find_engine()
    assert caught.value.exit_status == EXIT_NO_ENGINE


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ('{"type":"phase","phase":"measuring"}', Phase("measuring")),
        (
            '{"type":"sample","t":1.5,"goodput_bytes_per_s":2e9,"events_per_s":10,'
            '"nodes":[{"node":3,"roles":"3 (BU)","state":"lost","built_goodput_bytes":7,"sent_goodput_bytes":5}]}',
            Sample(1.5, 2e9, 10.0, (NodeSample("3 (BU)", "lost", 7, 5),)),
        ),
        (
            '{"type":"sample","t":1,"goodput_bytes_per_s":0,"events_per_s":0,"nodes":[]}',
            Sample(1.0, 0.0, 0.0, ()),
        ),
        ('{"type":"notice","level":"error","text":"node 2 is lost"}', Notice("error", "node 2 is lost")),
        ('{"type":"result","path":"/r/result.json"}', ResultWritten(Path("/r/result.json"))),
        ('{"type":"of a later version"}', None),
    ],
)
def test_every_kind_of_report(line: str, report: object) -> None:
    assert parse_progress(line) == report


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "[]",
        "3",
        "{}",
        '{"type":5}',
        '{"type":"phase"}',
        '{"type":"sample","t":"soon","goodput_bytes_per_s":1,"events_per_s":1,"nodes":[]}',
        '{"type":"sample","t":1,"goodput_bytes_per_s":1,"events_per_s":1}',
        '{"type":"sample","t":1,"goodput_bytes_per_s":1,"events_per_s":1,"nodes":[5]}',
        '{"type":"result","path":7}',
    ],
)
def test_what_is_no_report(line: str) -> None:
    with pytest.raises(ValueError):
        parse_progress(line)


@given(st.text())
def test_any_text_is_a_report_or_a_value_error(text: str) -> None:
    try:
        parse_progress(text)
    except ValueError:
        return
