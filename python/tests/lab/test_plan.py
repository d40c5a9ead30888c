"""Scan files: which points they ask for, in which order, and what is wrong with the others."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from incast.base.errors import OneLineError
from incast.engine.quantity import common_unit, number_of, quantity, setting_text
from incast.scan.plan import Plan, parse_plan, read_plan

from tests.lab.conftest import WriteScan


def plan_of(write_scan: WriteScan, text: str) -> Plan:
    return read_plan(write_scan(text, head="seconds = 1\n"))


def test_a_grid_is_every_combination(write_scan: WriteScan) -> None:
    plan = plan_of(write_scan, '[grid]\nprotocol.credits = [1, 2]\n"run.nodes" = [2, 3, 4]\n')
    assert [tuple(point.axes.values()) for point in plan.points] == list(itertools.product([1, 2], [2, 3, 4]))
    assert plan.axes == ("protocol.credits", "run.nodes")
    assert [point.number for point in plan.points] == [1, 2, 3, 4, 5, 6]


def test_listed_points_go_with_every_combination(write_scan: WriteScan) -> None:
    plan = plan_of(
        write_scan,
        '[[points]]\ntransport.name = "shm"\n[[points]]\ntransport.name = "tcp"\ntransport.tcp.streams = 2\n'
        "[grid]\nprotocol.credits = [1, 2]\n",
    )
    assert [point.axes for point in plan.points] == [
        {"transport.name": "shm", "protocol.credits": 1},
        {"transport.name": "shm", "protocol.credits": 2},
        {"transport.name": "tcp", "transport.tcp.streams": 2, "protocol.credits": 1},
        {"transport.name": "tcp", "transport.tcp.streams": 2, "protocol.credits": 2},
    ]


def test_settings_of_a_point_in_the_order_in_which_they_win(write_scan: WriteScan) -> None:
    plan = read_plan(
        write_scan(
            "seconds = 0.25\nwarm_up_seconds = 2\nkind = 'net'\n"
            "[set]\nnet.verify = true\n[grid]\nnet.message_size = ['4KiB']\n",
            head="",
        )
    )
    assert plan.points[0].settings == (
        "net.verify=true",
        "net.message_size=4KiB",
        "run.task=net",
        "run.duration=250000000ns",
        "run.warm_up=2000000000ns",
    )
    assert plan.readings()[0].settings()[-1] == "run.seed=1"


def test_repeats_have_seeds_of_their_own_unless_the_scan_says_one(write_scan: WriteScan) -> None:
    free = read_plan(write_scan("repeats = 2\n[grid]\nrun.nodes = [2]\n", head="seconds = 1\n"))
    assert [reading.settings()[-1] for reading in free.readings()] == ["run.seed=1", "run.seed=2"]
    fixed = read_plan(write_scan("repeats = 2\n[set]\nrun.seed = 7\n[grid]\nrun.nodes = [2]\n", head="seconds = 1\n"))
    assert [[word for word in reading.settings() if "seed" in word] for reading in fixed.readings()] == [
        ["run.seed=7"],
        ["run.seed=7"],
    ]


def test_what_is_simulated_is_known_from_settings_axes_and_the_base(write_scan: WriteScan, tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('[transport]\nname = "sim"\n')
    based = read_plan(write_scan("config = 'base.toml'\n[grid]\nrun.nodes = [2]\n", head="seconds = 1\n"))
    assert [point.simulated for point in based.points] == [True]
    axis = plan_of(write_scan, "[grid]\ntransport.name = ['sim', 'shm']\n")
    assert [point.simulated for point in axis.points] == [True, False]


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))
def test_every_reading_once_and_every_other_repeat_backwards(a: int, b: int, repeats: int) -> None:
    grid = "".join(f"protocol.{key} = {list(range(1, n + 1))}\n" for key, n in (("credits", a), ("packing", b)))
    plan = parse_plan(Path("scan.toml"), f"seconds = 1\nrepeats = {repeats}\n[grid]\n{grid}")
    readings = plan.readings()
    assert len({reading.key for reading in readings}) == len(readings) == a * b * repeats
    for repeat in range(repeats):
        numbers = [reading.point.number for reading in readings[repeat * a * b : (repeat + 1) * a * b]]
        assert numbers == sorted(numbers, reverse=repeat % 2 == 1)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["seconds", "allowed", "7.2e+06"]),
        ("seconds = 0\n", ["seconds = 0", "allowed"]),
        ("seconds = true\n", ["seconds = true"]),
        ("seconds = 1\ncolour = 'blue'\n", ['colour = "blue"', "allowed: kind"]),
        ("seconds = 1\n[protocol]\ncredits = 1\n", ["protocol", "[set] or [grid]"]),
        ("seconds = 1\nkind = 'sum'\n", ['kind = "sum"', '"run" or "net"']),
        ("seconds = 1\nrepeats = 0\n", ["repeats = 0", "1..1000"]),
        ("seconds = 1\nwarm_up_seconds = -1\n", ["warm_up_seconds = -1"]),
        ("seconds = 1\nconfig = 'absent.toml'\n", ['config = "absent.toml"']),
        ("seconds = 1\n", ["no points", "[grid]"]),
        ("seconds = 1\n[grid]\nprotocol.credits = 4\n", ["grid.protocol.credits = 4", "a list"]),
        ("seconds = 1\n[grid]\nprotocol.credits = []\n", ["grid.protocol.credits", "at least one"]),
        ("seconds = 1\n[grid]\nprotocol.credits = [4, '4']\n", ["grid.protocol.credits", "each value once"]),
        ("seconds = 1\n[grid]\nprotocol.credits = [[1]]\n", ["grid.protocol.credits"]),
        ("seconds = 1\n[grid]\ncredits = [1]\n", ["grid.credits", "protocol.credits"]),
        ("seconds = 1\n[grid]\nrun.duration = [1]\n", ["grid.run.duration", "`seconds`"]),
        ("seconds = 1\n[set]\nrun.task = 'net'\n", ["set.run.task", "`kind`"]),
        ("seconds = 1\n[set]\nrun.nodes = [1]\n", ["set.run.nodes", "[grid]"]),
        ("seconds = 1\n[set]\nrun.nodes = 1\n[grid]\nrun.nodes = [1]\n", ["set.run.nodes = 1", "either"]),
        ("seconds = 1\n[grid]\nrun.nodes = [1]\n[[points]]\nrun.nodes = 1\n", ["grid.run.nodes", "either"]),
        ("seconds = 1\n[[points]]\nrun.nodes = 1\n[[points]]\nrun.nodes = 1\n", ["points", "each point once"]),
        ("seconds = 1\npoints = 3\n", ["points = 3", "[[points]]"]),
        ("seconds = \n", ["no TOML"]),
        (
            f"seconds = 1\nrepeats = 1000\n[grid]\nrun.nodes = {list(range(1, 102))}\n",
            ["grid", "100000", "these are 101000"],
        ),
    ],
)
def test_a_bad_file_is_one_line_that_names_file_key_value_and_what_is_allowed(
    write_scan: WriteScan, text: str, names: list[str]
) -> None:
    path = write_scan(text, head="")
    with pytest.raises(OneLineError) as caught:
        read_plan(path)
    line = str(caught.value)
    assert caught.value.exit_status == 2
    assert "\n" not in line
    assert line.startswith(str(path))
    for name in names:
        assert name in line


def test_what_is_no_file_or_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name, why in (("absent.toml", "No such file"), ("binary.toml", "no UTF-8")):
        with pytest.raises(OneLineError, match=why):
            read_plan(tmp_path / name)


def test_the_digest_is_of_what_is_measured(write_scan: WriteScan) -> None:
    plain = plan_of(write_scan, "[grid]\nrun.nodes = [2, 3]\n").digest()
    assert plan_of(write_scan, "title = 'x'\ntimeout_seconds = 9\n[grid]\nrun.nodes = [2, 3]\n").digest() == plain
    for other in (
        "[grid]\nrun.nodes = [2, 4]\n",
        "repeats = 2\n[grid]\nrun.nodes = [2, 3]\n",
        "[set]\nrun.seed = 1\n[grid]\nrun.nodes = [2, 3]\n",
    ):
        assert plan_of(write_scan, other).digest() != plain


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("64KiB", 65536, "bytes"),
        ("1.5 MB", 1.5e6, "bytes"),
        ("500ms", 0.5, "s"),
        ("2min", 120, "s"),
        ("2m", 120, "s"),
        ("64K", 65536, "bytes"),
        ("100Gbps", 12.5e9, "bytes_per_s"),
        ("40kHz", 40e3, "hz"),
        ("100Gb/s", 12.5e9, "bytes_per_s"),
        ("12", 12, ""),
        (7, 7, ""),
    ],
)
def test_quantities(text: str | int, number: float, unit: str) -> None:
    found = quantity(text)
    assert found is not None
    assert found[0] == pytest.approx(number)
    assert found[1] == unit


@pytest.mark.parametrize("text", ["auto", "", "KiB", "1 parsec", "-1", "nan", "1e400x", True])
def test_what_is_no_quantity(text: str | bool) -> None:
    assert quantity(text) is None


def test_times_of_a_scan_may_have_units(write_scan: WriteScan) -> None:
    head = "seconds = '2m'\nwarm_up_seconds = '500ms'\n"
    plan = read_plan(write_scan("[grid]\nrun.nodes = [2]\n", head=head))
    assert (plan.seconds, plan.warm_up_seconds) == (120, 0.5)
    with pytest.raises(OneLineError, match=r"seconds = .*parsec.* a time such as 2m"):
        read_plan(write_scan("[grid]\nrun.nodes = [2]\n", head="seconds = '1 parsec'\n"))


def test_the_unit_of_an_axis() -> None:
    assert common_unit(["64KiB", "1MB", 512]) == "bytes"
    assert common_unit([1, 2]) == ""
    assert common_unit(["64KiB", "1s"]) is None
    assert common_unit(["auto", 1]) is None


@given(st.floats(0, 1e12, allow_nan=False), st.sampled_from(["", "KiB", "ms", "kHz", "Gb/s"]))
def test_a_quantity_is_its_number_times_its_unit(number: float, suffix: str) -> None:
    one = number_of(f"1{suffix}")
    assert one is not None
    assert number_of(f"{number!r}{suffix}") == pytest.approx(number * one)


def test_values_as_the_engine_reads_them() -> None:
    assert [setting_text(value) for value in (True, False, 3, 0.5, "4KiB")] == ["true", "false", "3", "0.5", "4KiB"]
