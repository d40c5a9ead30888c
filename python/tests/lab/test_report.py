"""The page and the figures: what is drawn, how it is labelled, and that the page needs nothing else."""

import html.parser
import json
import re
import resource
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from incast.base import extras
from incast.engine.program import ENGINE_VARIABLE
from incast.evidence.facts import Facts
from incast.figures.datasets import MEASURED, SIMULATED, Run, Scan, load
from incast.figures.report import make_parts, render, slug
from incast.figures.run_figures import Drawing, scale_of, unit_of
from incast.figures.scan_figures import Choice, scan_drawings
from incast.figures.style import DARK, LIGHT, page_svg, themed
from incast.scan.table import figures
from PIL import Image

from tests.conftest import DEADLINE_S, Incast, require_engine
from tests.lab.conftest import InProcess, WriteScan
from tests.test_summary import UNKNOWN_LATENCY

SIM = ("--transport", "sim", "--duration", "20ms", "--warm-up", "10ms", "--set", "run.sample_interval=10ms")
REAL = ("--transport", "inproc", "--duration", "200ms", "--warm-up", "50ms", "--set", "run.sample_interval=20ms")
SMALL = ("--nodes", "2", "--set", "source.prefill_size=256KiB", "--set", "net.working_set=256KiB")
SCAN = """
seconds = 0.002
warm_up_seconds = 0.001
repeats = 2
title = "<b>sizes</b> & credits"
[set]
transport.name = "sim"
[grid]
protocol.mfp_size = ["4KiB", "16KiB", "64KiB"]
protocol.credits = [1, 4]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A measured and a simulated run, raw traffic, and a simulated scan; made once, nothing is written to them."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "scan.toml").write_text(SCAN)
    incast = Incast(folder, {ENGINE_VARIABLE: str(require_engine())})
    for arguments in (
        ("run", *REAL, *SMALL, "--output", "built"),
        ("run", *SIM, "--nodes", "12", "--output", "virtual"),
        ("net", *REAL, *SMALL, "--output", "raw"),
        ("scan", "scan.toml", "--output", "scanned"),
    ):
        done = incast(*arguments)
        assert done.returncode == 0, done.stderr
    return [str(folder / name) for name in ("built", "virtual", "raw", "scanned")]


class Page(html.parser.HTMLParser):
    """Tags with their attributes, and whether they are closed in order."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def pixels(path: Path) -> tuple[int, int, int]:
    """Width, height and the number of different colours."""
    with Image.open(path) as image:
        colours = image.convert("RGB").getcolors(1 << 24)
        assert colours is not None
        return image.width, image.height, len(colours)


def test_one_page_that_needs_nothing_else(fake: InProcess, results: list[str]) -> None:
    built, _, _, scanned = results
    done = fake("report", built, scanned, "--output", "page", "--json", "--dark")
    assert done.returncode == 0, done.stderr
    folder = fake.folder / "page"
    written = json.loads(done.stdout)["files"]
    assert sorted(written) == sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    text = (folder / "index.html").read_text()
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "base"), tag
        for key, value in attributes.items():
            if key in ("src", "href", "xlink:href", "data", "action", "srcset"):
                assert value is not None
                assert value.startswith(("#", "data:image/png;base64,")), f"{tag} {key} = {value}"
            assert not key.startswith("on"), key
    assert "@import" not in text
    assert not re.search(r"url\(\s*['\"]?(?!#)", text), "nothing is loaded by a style either"
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)), "each id once, also across figures"
    targets = {value[1:] for _, attributes in page.tags if (value := attributes.get("href") or "").startswith("#")}
    assert targets <= set(ids)
    assert "<b>sizes</b>" not in text, "what results hold is text"
    assert "&lt;b&gt;sizes&lt;/b&gt;" in text

    pngs = [folder / name for name in written if name.endswith(".png")]
    assert len(pngs) == 2 * 5, "light and dark of each figure"
    for path in pngs:
        width, height, colours = pixels(path)
        assert min(width, height) > 200, path
        assert colours > 20, f"{path} has nothing drawn in it"
    for name in written:
        if name.endswith(".pdf"):
            assert (folder / name).read_bytes().startswith(b"%PDF-")
            assert name.removesuffix(".pdf") + ".png" in written


def test_measured_and_simulated_are_apart_and_labelled(results: list[str]) -> None:
    datasets = load([Path(name) for name in results])
    parts = make_parts(datasets, Choice())
    assert {part.domain for part in parts} == {MEASURED, SIMULATED}
    for part in parts:
        assert {drawing.domain for drawing in part.drawings} <= {part.domain}
        for drawing in part.drawings:
            assert drawing.conditions, drawing.title
            assert any(str(version) in " ".join(drawing.conditions) for version in ("incast 0", "Release", "GNU"))
            svg = page_svg(drawing.draw, 1)
            assert drawing.label in svg, "the figure itself says what it shows"
    with_runs = [drawing for part in parts for drawing in part.drawings if drawing.name.startswith(MEASURED)]
    for drawing in with_runs:
        text = " ".join([drawing.title, *drawing.conditions, *(cell for row in drawing.rows for cell in row)])
        assert "virtual" not in text
    names = [drawing.name for part in parts for drawing in part.drawings]
    assert len(names) == len(set(names))
    for kind in ("over-time", "matrix", "goodput", "throughput", "latency", "heat-map", "curves"):
        assert any(kind in name for name in names), kind
    anchors = [part.anchor for part in parts]
    assert len(anchors) == len(set(anchors))


def test_a_figure_follows_the_colours_of_the_page(results: list[str]) -> None:
    (drawing, *_) = drawings_of(Path(results[0]))
    svg = page_svg(drawing.draw, 7)
    assert "var(--text)" in svg
    assert "#010203" not in svg
    assert all(name.startswith("figure7-") for name in re.findall(r'\bid="([^"]*)"', svg))
    assert "<text" in svg, "text stays text: it can be searched and read aloud"
    for theme in (LIGHT, DARK):
        with themed(theme):
            assert drawing.draw(theme).axes


def drawings_of(directory: Path) -> list[Drawing]:
    return [drawing for part in make_parts(load([directory]), Choice()) for drawing in part.drawings]


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_contrasts_are_those_that_guidelines_ask_for(theme: Any) -> None:
    """WCAG 2: 4.5 for text. Lines need 3; where a colour of the palette has less, its marker tells it apart."""
    assert contrast(theme.text, theme.background) > 7
    assert contrast(theme.muted, theme.background) > 4.5
    assert contrast(theme.series[0], theme.background) > 3
    assert min(contrast(colour, theme.background) for colour in theme.series) > 1.9
    assert len(set(theme.series)) == len(theme.series) == 6


def test_the_heat_map_shows_the_medians_of_the_table(results: list[str]) -> None:
    (scan,) = load([Path(results[3])])
    assert isinstance(scan, Scan)
    heat, curves = scan_drawings(scan, SIMULATED, "x", Choice())
    assert heat.headings == ["protocol.credits \\ protocol.mfp_size", "4KiB", "16KiB", "64KiB"]
    for row in heat.rows:
        for size, cell in zip(heat.headings[1:], row[1:], strict=True):
            values = [
                one["goodput_without_self_bytes_per_s"]
                for one in scan.rows
                if (one["protocol.mfp_size"], str(one["protocol.credits"])) == (size, row[0])
            ]
            assert len(values) == 2
            factor, unit = scale_of(
                [v for one in scan.rows if (v := one["goodput_without_self_bytes_per_s"])], "bytes_per_s"
            )
            shown = [float(number) for number in re.split(r" \(|\.\.|\)", cell)[:3]]
            wanted = [each / factor for each in (statistics.median(values), min(values), max(values))]
            assert shown == pytest.approx(wanted, rel=1e-3)
            assert unit in heat.title
    assert [row[0] for row in curves.rows] == ["4KiB", "16KiB", "64KiB"]
    assert "lowest to highest of 2 repeats" in curves.conditions[0]
    other, _ = scan_drawings(scan, SIMULATED, "x", Choice("cpu_s_per_gb", "protocol.credits", "protocol.mfp_size"))
    assert other.headings[1:] == ["1", "4"]
    assert not scan_drawings(scan, MEASURED, "x", Choice())


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--value", "colour", "goodput_bytes_per_s"),
        ("--value", "status", "cpu_s"),
        ("--x", "run.nodes", "protocol.credits"),
    ],
)
def test_a_wrong_choice_is_one_line(fake: InProcess, results: list[str], option: str, value: str, words: str) -> None:
    done = fake("report", results[3], option, value, "--output", "page")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert option in done.stderr
    assert value in done.stderr
    assert words in done.stderr
    assert not (fake.folder / "page").exists()


def test_a_run_has_no_columns_to_choose_from(fake: InProcess, results: list[str]) -> None:
    done = fake("report", results[0], "--value", "goodput", "--output", "page")
    assert done.returncode == 2
    assert "--value goodput: only scans have columns to choose from" in done.stderr
    assert not (fake.folder / "page").exists()


def test_points_without_a_value_are_shown_as_such(real: InProcess, write_scan: WriteScan) -> None:
    text = (
        "seconds = 0.002\nwarm_up_seconds = 0\n[set]\ntransport.name = 'sim'\n"
        "[grid]\nprotocol.ack_per_write = [true, false]\nprotocol.outstanding_writes = [0, 4]\n"
    )
    assert real("scan", str(write_scan(text, head="")), "--output", "out").returncode == 1
    (scan,) = load([real.folder / "out"])
    assert isinstance(scan, Scan)
    heat, _ = scan_drawings(scan, SIMULATED, "x", Choice())
    assert sum(cell == "refused" for row in heat.rows for cell in row) == 1
    assert "refused" in page_svg(heat.draw, 1)
    page = render(make_parts([scan], Choice()), ["out"], "t", datetime(2026, 1, 1, tzinfo=UTC))
    assert "Readings that failed" in page
    assert "3 of 4 readings complete" in page


@pytest.mark.parametrize("largest", [5_000, 50_000])
def test_a_full_disk_is_one_line_that_names_the_file(fake: InProcess, results: list[str], largest: int) -> None:
    """The first figure has no room, or only the page has not."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, most))
    try:
        done = fake("report", results[0], "--output", "page")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert done.returncode == 2
    assert re.fullmatch(
        r"incast: --output page: page/\S+: File too large; allowed: a folder that can be written\n", done.stderr
    )
    assert not list(fake.folder.rglob("*.new")), "no half of a file"
    assert not (fake.folder / "page" / "index.html").exists()


def test_what_is_no_result_is_one_line(fake: InProcess, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "result.json").write_text('{"schema": 1, "kind": "net-sizes", "results": []}')
    for name in ("absent", "other"):
        done = fake("report", str(tmp_path / name))
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "incast run" in done.stderr


def test_a_missing_library_is_one_line(fake: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = fake("report", "anything")
    assert done.returncode == 1
    assert done.stderr == f"incast: incast report needs jinja2: {sys.executable} -m pip install 'incast[lab]'\n"
    assert not extras.is_here("jinja2")
    assert extras.is_here("json")


def test_a_result_of_a_run_that_was_cut_off(fake: InProcess, tmp_path: Path) -> None:
    """Without samples there is nothing over time; what there is is drawn."""
    assert fake("run", "--output", str(tmp_path / "cut")).returncode == 0
    (run,) = load([tmp_path / "cut"])
    assert isinstance(run, Run)
    names = [drawing.name for drawing in drawings_of(tmp_path / "cut")]
    assert not any("over-time" in name for name in names)
    assert any("goodput" in name for name in names)


def test_a_latency_that_is_not_known_is_in_no_figure_table_or_diagnosis(fake: InProcess, tmp_path: Path) -> None:
    folder = tmp_path / "far"
    assert fake("run", "--output", str(folder)).returncode == 0
    assert [drawing for drawing in drawings_of(folder) if "latency" in drawing.name]
    result = json.loads((folder / "result.json").read_text()) | UNKNOWN_LATENCY
    (folder / "result.json").write_text(json.dumps(result))
    assert not [drawing for drawing in drawings_of(folder) if "latency" in drawing.name]
    row = figures(result, "build")
    assert {key for key, value in row.items() if key.startswith("latency_") and value is not None} == {"latency_kind"}
    measured = {"node": 0, "phase": "measuring", "interval_s": 1.0, "delta": {"delay_ns": 10**9, "timed_meps": 10}}
    assert Facts.of(result, [measured]).mean_latency_s is None
    assert Facts.of(result | {"latency_ns": {"count": 10}}, [measured]).mean_latency_s == 0.1


def test_open_loop_shows_triggers_and_memory(real: InProcess) -> None:
    rate = (
        "--trigger-rate",
        "10kHz,10MHz@30ms,10kHz@31ms",
        "--policy",
        "throttle",
        "--set",
        "transport.sim.rate=10Gb/s",
    )
    small = ("--credits", "2", "--set", "source.memory=2MiB", "--duration", "60ms")
    done = real("run", *SIM, *rate, *small, "--output", "open")
    assert done.returncode == 0, done.stderr
    (drawing,) = [each for each in drawings_of(real.folder / "open") if each.name.endswith("triggers")]
    columns = [heading.partition(",")[0] for heading in drawing.headings]
    assert columns[1:4] == ["offered", "taken", "inhibited"]
    assert columns[-2:] == ["memory in use", "dead time"]
    result = json.loads((real.folder / "open" / "result.json").read_text())
    assert len(drawing.rows) == len(result["triggers"]["over_time"])
    fullest = max(float(row[-2]) for row in drawing.rows)
    assert fullest == pytest.approx(100 * max(each["occupancy"] for each in result["triggers"]["over_time"]), rel=0.01)
    assert "SIMULATED" in page_svg(drawing.draw, 1)


def test_names_and_scales() -> None:
    assert slug("Run r1 (2)/x") == "run-r1-2-x"
    assert unit_of("goodput_without_self_bytes_per_s") == "bytes_per_s"
    assert unit_of("latency_p50_ns") == "ns"
    assert scale_of([1.25e9], "bytes_per_s") == (1.25e8, "Gbit/s")
    assert scale_of([2e6], "ns") == (1e6, "ms")
    assert scale_of([], "fraction") == (1.0, "fraction")


def test_libraries_of_the_extra_are_imported_where_they_are_used() -> None:
    """Else every `incast run` would pay for them, and could not do without."""
    names = {"matplotlib", "polars", "jinja2", "numpy"}
    look = f"import sys, incast.cli.commands as c; c.application(); print(*sorted({names} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout.strip() == ""


def test_transports_in_turn(fake: InProcess, tmp_path: Path) -> None:
    """Curves of goodput and CPU, latencies, memory; and no comparison of two such folders."""

    def one(name: str, factor: float, per_peer: list[float]) -> dict[str, Any]:
        goodput = [
            {"message_bytes": size, "bytes_per_s": [1e9 * factor, 3e9 * factor, 2e9 * factor], "verify_errors": 0}
            | {"cpu_s_per_gb": [0.5, None, 0.7]}
            for size in (4096, 65536)
        ]
        ways = {"p50": [2000.0 / factor] * 3, "p99": [9000.0 / factor] * 3}
        return {"name": name, "settings": [], "goodput": goodput, "one_way_ns": ways, "bytes_per_peer": per_peer}

    whole = {
        **{"schema": 1, "kind": "net-compare", "rounds": 3, "ping_bytes": 64, "pattern": "pairs", "nodes": 4},
        **{"runs": 9, "runs_not_idle": 2, "unfinished": [], "buffers": "one"},
        "transports": [one("tcp", 1, [2e3, 4e3, 3e3]), one("shm", 2, [])],
        "left_out": [{"name": "verbs", "reason": "this host has no RDMA device"}],
    }
    folder = tmp_path / "compared"
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(whole))
    done = fake("report", str(folder), "--output", "page")
    assert done.returncode == 0, done.stderr
    page = (fake.folder / "page" / "index.html").read_text()
    for words in (
        "Transports in turn",
        "Raw throughput",
        "CPU time",
        "Latency",
        "3.00 (2.00..4.00)",
        "during 2 of 9",
        "Left out",
        "this host has no RDMA device",
        "buffers: one",
    ):
        assert words in page
    assert "16.0 (8.00..24.0)" in page and "32.0 (16.0..48.0)" in page, "Gbit/s of both at a size"
    refused = fake("compare", str(folder), str(folder))
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "allowed: two runs" in refused.stderr
