"""The commands beside `incast run`."""

import json
import re

import incast as package
import pytest
from incast.base.errors import OneLineError
from incast.cli import commands

from tests.conftest import Incast


def test_version(incast: Incast) -> None:
    assert incast("--version").stdout == f"incast {package.__version__}\n"


def test_info_says_what_is_here_and_why_something_is_not(incast: Incast) -> None:
    text = incast("info").stdout
    assert re.search(r"tcp +yes +sockets", text)
    assert re.search(r"verbs +no +no RDMA device on this host *\n +untested on hardware: traffic classes", text)
    assert re.search(r"versions compiler +gcc 12", text)


def test_info_as_json_names_the_engine(incast: Incast) -> None:
    answer = json.loads(incast("info", "--json").stdout)
    assert answer["engine_path"] == incast.environment["INCAST_NODE"]
    assert [transport["name"] for transport in answer["transports"]] == ["tcp", "verbs"]


def test_info_of_something_that_is_no_engine_is_one_line(incast: Incast) -> None:
    for mood, words in (("garbage", "printed no JSON object"), ("silent", "failed with status 1")):
        done = incast("info", mood=mood)
        assert done.returncode == 70
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_ctrl_c_while_an_error_is_said_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise OneLineError("some reason", 2)

    def is_interrupted(_line: str, _status: int) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "application", lambda _words: fails)
    monkeypatch.setattr(commands, "_complain", is_interrupted)
    with pytest.raises(SystemExit) as caught:
        commands.run_command_line()
    assert caught.value.code == 130
