"""Lists of hosts, and how nodes are spread over them."""

from pathlib import Path

import pytest
from incast.base.errors import OneLineError
from incast.engine.transports import chosen_across, one_thread, transports
from incast.hosts.places import Place, Slots, parse_hosts, read_hostfile, spread
from incast.hosts.spread import BY_HAND, LOCAL, SSH, Spread, by_hand, must_spread

pytest.importorskip("ClusterShell", reason="needs ClusterShell: pip install 'incast[hosts]'")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a", [("a", None)]),
        ("b,a:3", [("b", None), ("a", 3)]),
        ("node[08-10]", [("node08", None), ("node09", None), ("node10", None)]),
        ("n[1,3]:2,x", [("n1", 2), ("n3", 2), ("x", None)]),
        ("10.0.0.1", [("10.0.0.1", None)]),
        ("r[1-2]n[1-2]", [("r1n1", None), ("r1n2", None), ("r2n1", None), ("r2n2", None)]),
    ],
)
def test_lists_keep_their_order(text: str, wanted: list[tuple[str, int | None]]) -> None:
    assert parse_hosts(text) == [Slots(*each) for each in wanted]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is no host"),
        ("a,,b", "'' is no host"),
        ("a:0", "1..4096 nodes, but 0"),
        ("a:x", "1..4096 nodes, but x"),
        ("a:4097", "1..4096 nodes, but 4097"),
        ("node[1-", "'node[1-'"),
        ("a,b,a", "'a' is there twice"),
        ("a[1-3],a2", "'a2' is there twice"),
        ("-oProxyCommand=x", "no name of a host"),
        ("a;b", "no name of a host"),
        ("$(id)", "no name of a host"),
    ],
)
def test_what_is_no_list_is_one_line(text: str, why: str) -> None:
    with pytest.raises(OneLineError) as refused:
        parse_hosts(text)
    assert why in str(refused.value)
    assert str(refused.value).startswith("--hosts: ")
    assert "\n" not in str(refused.value)


def test_files_of_both_mpis_are_read(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# the rack\nnode[1-2] slots=4 max_slots=8\n\nbig:16  # MPICH's\nsmall\nother 2\n")
    wanted = [("node1", 4), ("node2", 4), ("big", 16), ("small", None), ("other", 2)]
    assert read_hostfile(file) == [Slots(*each) for each in wanted]


@pytest.mark.parametrize(
    ("content", "why"),
    [("", "no host in it"), ("a many\n", "line 1: 'many' is no number"), ("a\na\n", "'a' is there twice")],
)
def test_what_is_no_file_of_hosts_is_one_line(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(content)
    with pytest.raises(OneLineError) as refused:
        read_hostfile(file)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("text", "nodes", "wanted"),
    [
        ("a,b", None, [("a", 0, 1), ("b", 1, 1)]),
        ("a,b", 5, [("a", 0, 3), ("b", 3, 2)]),
        ("a:4,b", None, [("a", 0, 4), ("b", 4, 1)]),
        ("a:1,b,c", 6, [("a", 0, 1), ("b", 1, 3), ("c", 4, 2)]),
        ("a:1,b:2", 3, [("a", 0, 1), ("b", 1, 2)]),
    ],
)
def test_shares_are_equal_where_nothing_is_said(
    text: str, nodes: int | None, wanted: list[tuple[str, int, int]]
) -> None:
    assert spread(parse_hosts(text), nodes) == tuple(Place(*each) for each in wanted)


def test_an_event_manager_of_its_own_is_on_the_last_host() -> None:
    assert spread(parse_hosts("a,b"), 4, 1) == (Place("a", 0, 2), Place("b", 2, 3))
    waiting = by_hand(2, 4, 1, "", "")
    assert (waiting.here, waiting.guests, waiting.nodes) == (3, 2, 4)


@pytest.mark.parametrize(("text", "nodes"), [("a,b", 1), ("a:2,b:2", 5), ("a:2,b:2", 3), ("a:4,b", 4)])
def test_as_many_nodes_as_the_hosts_take(text: str, nodes: int) -> None:
    with pytest.raises(OneLineError, match=f"the run has {nodes}"):
        spread(parse_hosts(text), nodes)


def test_a_spread_is_the_same_in_another_process() -> None:
    one = Spread("ssh", (Place("a", 0, 2),), ("/engine",), ("10.0.0.1",), "10.0.0.1:0", "ssh", 2)
    assert Spread.from_json(one.to_json()) == one
    (job,) = one.jobs("10.0.0.1:4711", Path("/out"), "secret")
    assert "secret" not in job.command
    assert job.input == b"secret\n"
    assert "--join 10.0.0.1:4711" in job.command


def test_a_transport_has_to_reach_the_nodes_wherever_they_are() -> None:
    must_spread(chosen_across(), SSH)
    must_spread(one_thread(), LOCAL)
    with pytest.raises(OneLineError, match="its nodes are all on one host"):
        must_spread(one_thread(), SSH)


@pytest.mark.parametrize("launcher", [LOCAL, SSH, BY_HAND, "mpirun"])
def test_what_has_a_launcher_of_its_own_is_started_by_no_other(launcher: str) -> None:
    (launched,) = (each.name for each in transports() if each.launch)
    with pytest.raises(OneLineError, match=f"--transport {launched}: a launcher of its own starts its nodes"):
        must_spread(launched, launcher)
