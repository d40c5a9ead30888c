"""What is shown while a run goes on."""

import io
from dataclasses import replace

import pytest
from incast.engine.progress import NodeSample, Notice, Phase, Planned, Sample
from incast.run.live import PlainView, TerminalView, make_view
from rich.console import Console


class Clock:
    """A time that moves when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, height=50, legacy_windows=False)


def written(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def sample(t_s: float, goodput: float = 1e9, nodes: int = 2) -> Sample:
    """Nodes that have shared this goodput evenly since the start."""
    each = int(goodput * t_s / nodes)
    return Sample(
        t_s, goodput, 5000.0, tuple(NodeSample(f"{node} (RU+BU)", "active", each, each) for node in range(nodes))
    )


def test_plain_lines_are_two_seconds_apart() -> None:
    clock, screen = Clock(), console(terminal=False)
    with PlainView(screen, virtual=False, clock=clock) as view:
        for step in range(40):
            view.on_progress(sample(step / 8))
            clock.now_s += 0.125
    lines = written(screen).splitlines()
    assert [line.split(" s ")[0].strip() for line in lines] == ["0.0", "2.0", "4.0"]


def test_notices_do_not_wait() -> None:
    screen = console(terminal=False)
    with PlainView(screen, virtual=False, clock=Clock()) as view:
        for number in range(3):
            view.on_progress(Notice("warning", f"peer {number} is slow"))
        view.on_progress(Notice("engine", "[as it] is: /a/path"))
    assert written(screen).splitlines() == [
        "warning: peer 0 is slow",
        "warning: peer 1 is slow",
        "warning: peer 2 is slow",
        "[as it] is: /a/path",
    ]


def test_the_mean_is_of_the_present_phase() -> None:
    clock, screen = Clock(), console(terminal=False)
    with PlainView(screen, virtual=False, clock=clock) as view:
        view.on_progress(Phase("warm-up"))
        view.on_progress(sample(0, goodput=1e9))
        view.on_progress(Phase("measuring"))
        view.on_progress(sample(1, goodput=3e9))
        clock.now_s += 2
        view.on_progress(sample(2, goodput=5e9))
    last = written(screen).splitlines()[-1]
    assert "5.00 GB/s  mean 4.00 GB/s" in last
    assert not last.endswith("[warm-up]")


def test_warm_up_is_announced_and_each_phase_has_a_line_at_once() -> None:
    clock, screen = Clock(), console(terminal=False)
    with PlainView(screen, virtual=False, clock=clock) as view:
        view.on_progress(Planned((("run", "2 nodes over tcp"), ("results", "out"))))
        view.on_progress(Phase("joining"))
        view.on_progress(sample(0.1))
        view.on_progress(Phase("warm-up", 1.0))
        view.on_progress(sample(0.5))
        view.on_progress(Phase("measuring", 0.5))
        view.on_progress(replace(sample(1.5), left_s=70.0))
        view.on_progress(Phase("draining"))
    lines = written(screen).splitlines()
    assert lines[:3] == ["run       2 nodes over tcp", "results   out", "warm-up for 1 s, not measured"]
    assert lines[3].endswith("[warm-up]")
    assert lines[4] == "measuring for 0.5 s"
    assert lines[5].endswith("1 min 10 s left")
    assert len(lines) == 6


def test_while_nodes_join_the_view_says_how_many_are_here() -> None:
    view = TerminalView(console(terminal=True), "incast run", virtual=False, clock=Clock())
    view.on_progress(Phase("joining"))
    joining = replace(sample(1.0, nodes=4), left_s=6.0)
    nodes = [replace(node, state="joining" if at < 2 else "running") for at, node in enumerate(joining.nodes)]
    view.on_progress(replace(joining, nodes=tuple(nodes)))
    plain = console(terminal=False)
    plain.print(view.render())
    assert "joining (2 of 4 nodes)  0 s, then 6 s" in written(plain)


@pytest.mark.parametrize("virtual", [False, True])
def test_every_line_fits_80_columns(virtual: bool) -> None:
    plain = console(terminal=False)
    with PlainView(plain, virtual=virtual, clock=Clock(), unit="messages") as view:
        view.on_progress(Phase("measuring"))
        view.on_progress(replace(sample(99999.9, goodput=12.3e9), events_per_s=12.3e6, left_s=3599.0))
    assert max(map(len, written(plain).splitlines())) <= 80
    screen = console(terminal=True)
    in_place = TerminalView(screen, "incast net  inproc  1MiB", virtual=virtual, clock=Clock())
    for t_s in range(1, 60):
        in_place.on_progress(replace(sample(float(t_s), goodput=64e9, nodes=64), left_s=3599.0))
    narrow = Console(file=io.StringIO(), width=80, height=50)
    narrow.print(in_place.render())
    assert isinstance(narrow.file, io.StringIO)
    lines = narrow.file.getvalue().splitlines()
    assert len(lines) == 3 + 16 + 1, "no line was folded"


def test_a_simulation_says_how_long_it_takes_here() -> None:
    clock, screen = Clock(), console(terminal=False)
    with PlainView(screen, virtual=True, clock=clock) as view:
        view.on_progress(Phase("measuring", 0.01))
        clock.now_s += 8
        view.on_progress(replace(sample(0.004), left_s=0.006))
    assert "12 s left" in written(screen)


def test_virtual_time_is_said_in_both_views() -> None:
    plain = console(terminal=False)
    with PlainView(plain, virtual=True) as view:
        view.on_progress(sample(1))
    assert "VIRTUAL TIME" in written(plain)

    terminal = console(terminal=True)
    terminal.print(TerminalView(terminal, "incast run", virtual=True).render())
    assert "VIRTUAL TIME" in written(terminal)


def test_many_nodes_become_a_few_bars_and_a_span() -> None:
    screen = console(terminal=True)
    view = TerminalView(screen, "incast run", virtual=False)
    view.on_progress(sample(1, goodput=64e9, nodes=64))
    screen.print(view.render())
    text = written(screen)
    assert "node 15 (RU+BU)" in text
    assert "node 16 (RU+BU)" not in text
    assert "48 more" in text
    assert "1.00 GB/s to 1.00 GB/s" in text


def test_a_node_shows_what_it_did_since_the_sample_before() -> None:
    screen = console(terminal=True)
    view = TerminalView(screen, "incast run", virtual=False)
    for t_s, built, sent in ((1.0, 9_000_000_000, 0), (3.0, 13_000_000_000, 1_000_000_000)):
        view.on_progress(Sample(t_s, 1e9, 1.0, (NodeSample("0 (RU+BU)", "active", built, sent),)))
    screen.print(view.render())
    assert "builds 2.00 GB/s" in written(screen)
    assert "sends 500 MB/s" in written(screen)


def test_a_lost_node_says_so() -> None:
    screen = console(terminal=True)
    view = TerminalView(screen, "incast run", virtual=False)
    view.on_progress(Sample(1.0, 1e9, 1.0, (NodeSample("1 (BU)", "lost", 0, 0), NodeSample("2 (BU)", "active", 5, 0))))
    screen.print(view.render())
    lines = written(screen).splitlines()
    assert any("node 1 (BU)" in line and "lost" in line for line in lines)
    assert not any("node 2 (BU)" in line and "lost" in line for line in lines)


def test_the_terminal_is_redrawn_ten_times_a_second_at_most() -> None:
    clock, screen = Clock(), console(terminal=True)
    with TerminalView(screen, "incast run", virtual=False, clock=clock) as view:
        view.on_progress(sample(1))
        clock.now_s += 1
        view.on_tick()
        drawn = len(written(screen))
        for _ in range(1000):
            view.on_progress(sample(1))
            clock.now_s += 0.00005
            view.on_tick()
        assert len(written(screen)) == drawn
        clock.now_s += 0.125
        view.on_tick()
        assert len(written(screen)) > drawn


def test_a_live_view_needs_a_terminal() -> None:
    assert isinstance(make_view(console(terminal=True), "", virtual=False), TerminalView)
    assert isinstance(make_view(console(terminal=False), "", virtual=False), PlainView)


def test_the_plan_fits_80_columns_in_a_pipe() -> None:
    screen = console(terminal=False)
    with PlainView(screen, virtual=False) as view:
        view.on_progress(Planned((("packets", "63.2 KiB each, " + "and more of it " * 6), ("results", "x" * 90))))
    lines = written(screen).splitlines()
    assert lines[0].startswith("packets   63.2 KiB each, and")
    assert lines[1].startswith("          ")
    assert max(map(len, lines[:2])) <= 80
    assert lines[-1].endswith("x" * 90)
