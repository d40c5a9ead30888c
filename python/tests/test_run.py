"""`incast run` with an engine that behaves and with engines that do not."""

import json
import os
import pty
import re
import selectors
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from incast.base.errors import OneLineError
from incast.engine.process import EngineRun, Outcome
from incast.engine.progress import Notice, Progress
from incast.engine.transports import chosen_here
from incast.run.execution import read_result, show_result
from incast.run.request import make_request

from tests.conftest import DEADLINE_S, Incast, wait_for_line
from tests.fake_engine import CONFIG_LINE, RESULT

NOW = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)


def test_without_options_the_engine_decides_everything(incast: Incast) -> None:
    done = incast("run")
    assert done.returncode == 0, done.stderr
    arguments = incast.engine_arguments()
    assert arguments[0] == "--output"
    assert re.fullmatch(rf"incast-results/\d{{8}}T\d{{6}}Z-{chosen_here()}", arguments[1])
    assert arguments[2:-1] == ["--progress", "json", "--watched-by"]
    assert (incast.folder / arguments[1] / "result.json").is_file()


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("--nodes 8", ["run.nodes=8"]),
        ("--transport inproc", ["transport.name=inproc"]),
        ("--protocol pull", ["protocol.scheme=pull"]),
        ("--schedule random", ["protocol.schedule=random"]),
        ("--layout segmented", ["protocol.layout=segmented"]),
        ("--filter 0.3", ["filter.accept=0.3"]),
        ("--filter plugin:some.so", ["filter.kind=plugin", "filter.path=some.so"]),
        ("--filter command:decide", ["filter.kind=command", "filter.command=decide"]),
        (
            "--filter python:json:loads",
            ["filter.kind=command", f"filter.command={sys.executable} -m incast.filter json:loads"],
        ),
        ("--fragment-size 2KiB", ["source.fragment_size=2KiB"]),
        ("--mfp-size 64KiB", ["protocol.mfp_size=64KiB"]),
        ("--packing 30", ["protocol.packing=30"]),
        ("--size-distribution lognormal", ["source.size_distribution=lognormal"]),
        ("--sources-per-ru 5", ["source.sources_per_ru=5"]),
        ("--credits 7", ["protocol.credits=7"]),
        ("--parallel-requests 3", ["protocol.parallel_requests=3"]),
        ("--parallel-sends 2", ["protocol.parallel_sends=2"]),
        ("--roles split", ["run.roles=split"]),
        ("--em own", ["run.em=own"]),
        ("--duration 3s", ["run.duration=3s"]),
        ("--events 1000", ["run.events=1000"]),
        ("--warm-up 500ms", ["run.warm_up=500ms"]),
        ("--trigger-rate 40kHz", ["source.trigger_rate=40kHz"]),
        (
            "--trigger-rate 80kHz,120kHz@5s,80kHz@10s",
            ["source.trigger_rate=80kHz", "source.trigger_steps=120kHz@5s,80kHz@10s"],
        ),
        ("--arrivals poisson", ["source.arrivals=poisson"]),
        ("--arrivals trace:gaps.txt", ["source.arrivals=trace", "source.arrival_trace=gaps.txt"]),
        ("--policy drop", ["source.policy=drop"]),
        (
            "--size-distribution histogram:s.toml",
            ["source.size_distribution=histogram", "source.size_histogram=s.toml"],
        ),
        ("--size-correlation 0.3", ["source.size_correlation=0.3"]),
        ("--mean-ratio 10", ["source.mean_ratio=10"]),
        ("--hot-source 4", ["source.hot_factor=4"]),
        ("--hot-source 2:4", ["source.hot_factor=4", "source.hot_source=2"]),
        ("--sink command:cat", ["sink.kind=command", "sink.command=cat"]),
        ("--source generator", ["source.kind=generator"]),
        ("--source some/mfps", ["source.kind=mfp", "source.path=some/mfps"]),
        ("--source udp:0", ["source.kind=udp", "source.port=0"]),
        ("--source tcp:4700", ["source.kind=tcp", "source.port=4700"]),
        ("--source udp:files", ["source.kind=mfp", "source.path=udp:files"]),
        ("--sink touch", ["sink.kind=touch"]),
        ("--sink mep:out:er", ["sink.kind=mep", "sink.path=out:er"]),
        ("--sink consumer:farm", ["sink.kind=consumer", "sink.name=farm"]),
        ("--verify header", ["sink.verify=header"]),
        ("--seed 42", ["run.seed=42"]),
        ("--nodes 3 --set run.nodes=5 --set a.b=c", ["run.nodes=3", "run.nodes=5", "a.b=c"]),
    ],
)
def test_every_option_is_a_setting_of_the_engine(incast: Incast, options: str, settings: list[str]) -> None:
    assert incast("run", *options.split()).returncode == 0
    assert incast.engine_settings() == settings


@pytest.mark.parametrize(
    ("config", "options", "settings", "transport"),
    [
        ('[transport]\nname = "inproc"', {}, [], "inproc"),
        ('[transport]\nname = "inproc"', {"transport.name": "sim"}, [], "sim"),
        ("", {"transport.name": "sim"}, ["transport.name=tcp"], "tcp"),
        ("transport = 5", {}, [], chosen_here()),
        ("not TOML at all", {}, [], chosen_here()),
        ("", {"transport.name": "../../evil"}, [], "evil"),
    ],
)
def test_the_results_are_named_after_time_and_transport(
    tmp_path: Path, config: str, options: dict[str, str], settings: list[str], transport: str
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(config)
    request = make_request(file, options, settings, None, NOW)
    assert request.output == Path("incast-results") / f"20310506T070809Z-{transport}"


def test_two_runs_in_one_second_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = (make_request(None, {}, [], None, NOW).with_folder().output for _ in range(2))
    assert first.is_dir()
    assert second.name == f"{first.name}-2"


def test_a_config_file_goes_to_the_engine_with_what_overrides_it(incast: Incast) -> None:
    incast("run", "my.toml", "--nodes", "2", "--output", "here")
    asked = ["my.toml", "--set", "run.nodes=2", "--output", "here", "--progress", "json", "--watched-by"]
    assert incast.engine_arguments()[:-1] == asked


def test_summary_on_stdout_and_progress_on_stderr(incast: Incast) -> None:
    done = incast("run", "--output", "here")
    assert "goodput, without self  3.00 GB/s   (24.0 Gbit/s)" in done.stdout
    assert "results in" in done.stdout
    assert "here" in done.stdout
    assert "VIRTUAL" not in done.stdout
    assert "warning: node 1 is slow" in done.stderr
    assert "mean" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_a_foreign_line_among_the_reports_is_told_and_does_no_harm(incast: Incast) -> None:
    done = incast("run")
    assert done.returncode == 0
    assert done.stderr.count("'a library prints a line of its own'") == 1


def test_json_is_the_result_and_nothing_else(incast: Incast) -> None:
    done = incast("run", "--json")
    assert json.loads(done.stdout) == RESULT


def test_files_of_ours_that_are_not_whole_are_in_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "diagnosis.json.new").mkdir()  # so that it cannot be written
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    machine = {"file": "machine.jsonl", "missing": 7, "reason": "No space left on device"}
    outcome = Outcome(0, tmp_path / "result.json", incomplete=(machine,))
    show_result(outcome, read_result(outcome, tmp_path / "result.json"), tmp_path / "result.json", as_json=True)
    said = capsys.readouterr()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result == json.loads(said.out)
    diagnosis = {"file": "diagnosis.json", "missing": None, "reason": "Is a directory"}
    assert result == RESULT | {"incomplete_files": [machine, diagnosis]}
    assert "diagnosis.json is not written: Is a directory" in said.err


def test_what_is_not_verified_and_what_is_virtual_says_so(incast: Incast) -> None:
    assert "not verified" in incast("run", mood="null-sink").stdout
    virtual = incast("run", "--transport", "sim", mood="virtual")
    assert virtual.stdout.startswith("VIRTUAL TIME")
    assert "VIRTUAL TIME" in virtual.stderr


def test_a_bad_config_is_the_engines_line_and_status(incast: Incast) -> None:
    done = incast("run", "--nodes", "0", mood="bad-config")
    assert done.returncode == 2
    assert done.stderr == CONFIG_LINE + "\n"
    assert done.stdout == ""


def test_losing_the_event_manager_keeps_the_result_and_the_status(incast: Incast) -> None:
    done = incast("run", mood="lost")
    assert done.returncode == 3
    assert "error: node 0 is lost and with it the event manager" in done.stderr
    assert "full: 2 ERRORS" in done.stdout


@pytest.mark.parametrize(
    ("mood", "status", "words"),
    [
        ("killed", 137, "the engine was killed by SIGKILL before it could report; what there is lies in here"),
        ("silent", 70, "ended without a result"),
        ("garbage", 70, "5 foreign lines, the first: 'hello, I am another program'"),
        ("endless-garbage", 70, "101 foreign lines, the first: 'y'"),
        ("unreadable-result", 70, "here/result.json is no readable result"),
    ],
)
def test_an_engine_that_misbehaves_is_one_clear_line(incast: Incast, mood: str, status: int, words: str) -> None:
    done = incast("run", "--output", "here", mood=mood)
    assert done.returncode == status
    complaints = [line for line in done.stderr.splitlines() if line.startswith("incast: ")]
    assert len(complaints) == 1
    assert words in complaints[0]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_crash_after_the_report_keeps_the_report(incast: Incast) -> None:
    done = incast("run", mood="crash-after-result")
    assert done.returncode == 139
    assert "killed by SIGSEGV after it had reported" in done.stderr
    assert "3.00 GB/s" in done.stdout


def test_a_missing_engine_is_one_clear_line(incast: Incast) -> None:
    incast.environment["INCAST_NODE"] = str(incast.folder / "absent")
    done = incast("run")
    assert done.returncode == 127
    assert done.stderr.count("\n") == 1
    assert "absent is not a program that can be run" in done.stderr


def start(incast: Incast, mood: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        incast.command("run", "--output", "here", "--json"),
        cwd=incast.folder,
        env=incast.full_environment(mood),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_request_to_stop_drains_and_reports(incast: Incast, how: signal.Signals) -> None:
    with start(incast, "drain") as process:
        wait_for_line("GB/s", process)
        process.send_signal(how)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert json.loads(output)["events"] == 1, "the engine is asked exactly once"


def test_the_second_request_aborts_an_engine_that_does_not_drain(incast: Incast) -> None:
    with start(incast, "deaf") as process:
        wait_for_line("GB/s", process)
        process.send_signal(signal.SIGINT)
        wait_for_line("Ctrl-C again aborts", process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "incast: aborted" in errors
    assert output == ""


def test_ctrl_c_on_a_terminal_asks_the_engine_once(incast: Incast) -> None:
    status, shown = on_a_terminal(incast, "drain", type_after={"goodput": b"\x03"})
    assert status == 0, shown
    result = json.loads((incast.folder / "here" / "result.json").read_text())
    assert result["events"] == 1


def test_the_live_view_is_on_a_terminal(incast: Incast) -> None:
    status, shown = on_a_terminal(incast, "well", type_after={})
    assert status == 0
    assert "\x1b[" in shown
    assert "goodput, without self" in shown


def on_a_terminal(incast: Incast, mood: str, type_after: dict[str, bytes]) -> tuple[int, str]:
    """Runs the command as the foreground of a terminal, typing keys once some text was shown; status and screen."""
    try:
        child, terminal = pty.fork()
    except OSError as error:
        pytest.skip(f"no pseudo-terminals here: {error}")
    if child == 0:
        os.chdir(incast.folder)
        command = incast.command("run", "--output", "here")
        os.execvpe(command[0], command, incast.full_environment(mood) | {"TERM": "xterm-256color"})
    shown = ""
    pending = dict(type_after)
    deadline = time.monotonic() + DEADLINE_S
    with selectors.DefaultSelector() as selector:
        selector.register(terminal, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                os.kill(child, signal.SIGKILL)
                break
            try:
                chunk = os.read(terminal, 4096)
            except OSError:  # Linux: the other side of the terminal is closed
                break
            shown += chunk.decode(errors="replace")
            for text in [text for text in pending if text in shown]:
                os.write(terminal, pending.pop(text))
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown


def test_nodes_that_outlive_the_engine_are_ended_after_a_grace(
    fake_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "orphans")
    reports: list[Progress] = []
    command = [str(fake_engine), "--output", str(tmp_path / "out"), "--progress", "json"]
    with pytest.raises(OneLineError, match="SIGKILL"):
        EngineRun(command, reports.append, lambda: None, orphan_grace_s=0.1).watch()
    orphan = next(int(report.text) for report in reports if isinstance(report, Notice))
    deadline = time.monotonic() + DEADLINE_S
    while is_running(orphan):
        assert time.monotonic() < deadline, "the node still runs"
        time.sleep(0.01)  # house: allow sleep: polls with a deadline


def is_running(process_id: int) -> bool:
    """False also for one that has ended and that nobody has waited for yet."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_words_of_others_are_no_markup(incast: Incast) -> None:
    """A path may hold what a terminal library takes for an emoji or a colour."""
    name = "night:100:[bold]1[/bold]"
    done = incast("run", "--output", name)
    assert done.returncode == 0, done.stderr
    assert name in done.stdout + done.stderr
    refused = incast("run", "--output", "w", "--web-listen", "127.0.0.1:-1:")
    assert "127.0.0.1:-1:" in refused.stderr
