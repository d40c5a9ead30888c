"""The page of a report, and its figures as PNG and PDF (docs/reports.md)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import incast
from incast.base import extras, units
from incast.base.files import replace_file
from incast.engine.quantity import setting_text
from incast.evidence.cables import load_rows
from incast.evidence.dips import find_dips, read_log, read_machine
from incast.evidence.network import network_lines
from incast.evidence.result import is_open_loop, number
from incast.figures.datasets import MEASURED, SIMULATED, Bridge, Comparison, Dataset, Run, Scan, Tuned, scan_conditions
from incast.figures.flows_figures import flows_drawings
from incast.figures.net_compare_figures import comparison_drawings, memory_rows
from incast.figures.network_figures import network_drawings
from incast.figures.root_figures import root_drawings
from incast.figures.run_figures import Drawing, domain_label, run_drawings, side_by_side
from incast.figures.scan_figures import Choice, limits_table, scan_drawings
from incast.figures.style import DARK, LIGHT, page_svg, save
from incast.figures.tune_figures import changed_settings, figure_words, tune_conditions, tune_drawings
from incast.figures.zmq_figures import zmq_drawings
from incast.scan.table import Row

PAGE_NAME = "index.html"
FIGURES_NAME = "figures"
_FAILED_MAX = 30
_DIPS_MAX = 50
_SOURCES_MAX = 200


@dataclass
class PageTable:
    """A table of the page; `words` are the columns that hold text."""

    caption: str
    headings: list[str]
    rows: list[list[str]]
    words: tuple[int, ...] = ()


@dataclass
class Part:
    """What belongs together on the page, all of one kind of data."""

    heading: str
    domain: str
    tables: list[PageTable] = field(default_factory=list)
    drawings: list[Drawing] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """For links within the page."""
        return slug(f"{self.domain}-{self.heading}")


def slug(text: str) -> str:
    """For names of files and anchors."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"


def make_parts(datasets: Sequence[Dataset], choice: Choice) -> list[Part]:
    """Measured data first; runs side by side, then each run, flows, tunings, scans and comparisons of transports."""
    parts: list[Part] = []
    for domain in (MEASURED, SIMULATED):
        all_runs = [each for each in datasets if isinstance(each, Run) and each.domain == domain]
        runs = [run for run in all_runs if not run.is_flows]
        if runs:
            heading = "Runs side by side" if len(runs) > 1 else f"Run {runs[0].name}"
            part = Part(heading, domain, [_runs_table(runs)], side_by_side(runs, domain, slug(f"{domain}-runs")))
            part.tables += [table for run in runs if (table := _dips_table(run)) is not None]
            parts.append(part)
            for index, run in enumerate(runs, 1):
                name = slug(f"{domain}-{index}-{run.name}")
                drawings = run_drawings(run, name) + network_drawings(run, name)
                if len(runs) == 1:
                    part.drawings += drawings
                elif drawings:
                    parts.append(Part(f"Run {run.name}", domain, [], drawings))
        for index, run in enumerate((run for run in all_runs if run.is_flows), 1):
            drawings = flows_drawings(run, slug(f"{domain}-flows-{index}-{run.name}"))
            parts.append(Part(f"Flows {run.name}", domain, [_flows_table(run)], drawings))
        for index, tuned in enumerate((each for each in datasets if isinstance(each, Tuned)), 1):
            if tuned.domain == domain:
                drawings = tune_drawings(tuned, slug(f"{domain}-tune-{index}-{tuned.name}"))
                parts.append(Part(f"Tuning {tuned.name}", domain, _tune_tables(tuned), drawings))
        for index, scan in enumerate((each for each in datasets if isinstance(each, Scan)), 1):
            rows = scan.of_domain(domain)
            if rows:
                drawings = scan_drawings(scan, domain, slug(f"{domain}-scan-{index}-{scan.name}"), choice)
                parts.append(Part(f"Scan {scan.plan.title} ({scan.name})", domain, _scan_tables(scan, rows), drawings))
        if domain == MEASURED:
            parts += [_comparison_part(each, n) for n, each in enumerate(datasets, 1) if isinstance(each, Comparison)]
            parts += [_bridge_part(each, n) for n, each in enumerate(datasets, 1) if isinstance(each, Bridge)]
    return parts


def _bridge_part(bridge: Bridge, number: int) -> Part:
    title, draw = {"zmq": ("ZeroMQ", zmq_drawings), "root": ("ROOT", root_drawings)}[bridge.result["kind"]]
    drawings = draw(bridge, slug(f"{bridge.result['kind']}-{number}-{bridge.name}"))
    return Part(f"{title} ({bridge.name})", MEASURED, [], drawings)


def _comparison_part(comparison: Comparison, number: int) -> Part:
    tables = [PageTable("Memory of a further peer", ["transport", "kB per peer"], memory_rows(comparison), (0,))]
    if left_out := comparison.result["left_out"]:
        rows = [[each["name"], each["reason"]] for each in left_out]
        tables.append(PageTable("Left out", ["transport", "reason"], rows, (0, 1)))
    drawings = comparison_drawings(comparison, slug(f"transports-{number}-{comparison.name}"))
    return Part(f"Transports in turn ({comparison.name})", MEASURED, tables, drawings)


def _runs_table(runs: Sequence[Run]) -> PageTable:
    rows = []
    for run in runs:
        name, value = run.headline
        found = run.diagnosis()
        lost = None if run.is_net else number(run.result, "lost_events")
        loads = [words for _, words in load_rows(run.result)]
        rows.append(
            [
                run.name,
                units.duration_ns(value) if name.endswith("ns") else f"{units.rate(value)} ({units.line_rate(value)})",
                name.partition(",")[0],
                str(run.result.get("status")),
                units.ABSENT if run.is_net else "unknown" if lost is None else units.count(lost),
                f"{run.result.get('verified')}, {units.count(number(run.result, 'verify_errors'))} errors",
                f"{found.limited_by} ({found.confidence})" if found.confidence != "none" else found.limited_by,
                "; ".join(dict.fromkeys([*found.evidence, *loads, *network_lines(run.result)])),
                found.suggestion,
            ]
        )
    headings = ["run", "figure", "what", "status", "lost events", "verified", "limited by", "evidence", "to try"]
    return PageTable("Runs", headings, rows, (0, 2, 3, 5, 6, 7, 8))


def _flows_table(run: Run) -> PageTable:
    flows, network = run.result["flows"], run.result["network"]
    totals, links = network["totals"], network["links"]
    rows = [
        ["status", str(run.result["status"])],
        ["flows", f"{units.count(flows['ended'])} of {units.count(flows['offered'])} have ended"],
        ["delivered", f"{units.size(flows['delivered_bytes'])}, {units.line_rate(run.result['bytes_per_s'])}"],
        ["busiest link", f"{links['busiest']}: {units.fraction(links['utilisation_max'])}"],
        *(
            [words, units.count(totals[key])]
            for key, words in (
                ("packets", "packets"), ("dropped", "dropped"), ("lost", "lost on cables"), ("repeated", "sent again"),
                ("marked", "marked"), ("pauses", "pauses"),
            )
        ),
        *(["network", line] for line in network_lines(run.result)),
    ]  # fmt: skip
    return PageTable(f"Flows: {run.name}", ["what", "figure"], rows, (1,))


def _tune_tables(tuned: Tuned) -> list[PageTable]:
    outcome = tuned.outcome
    best, default, ratio = outcome["best"], outcome["default"], outcome["ratio"]
    limits = outcome.get("limited_by") or {}
    gain = (
        None if ratio is None else f"{ratio['median']:.2f} x ({ratio['min']:.2f} .. {ratio['max']:.2f} in the rounds)"
    )
    rows = [
        ["goal", str(outcome["goal"])],
        ["best", figure_words(tuned, best) if best else "no point kept the bounds"],
        ["defaults", figure_words(tuned, default)],
        ["best over defaults", gain or units.ABSENT],
        ["confirmed", "yes, by fresh readings in turn" if outcome["confirmed"] else "no: no fresh readings were taken"],
        ["limited by", str(limits.get("limited_by") or units.ABSENT)],
        ["evidence", str(limits.get("limited_by_evidence") or units.ABSENT)],
        ["to try", str(limits.get("suggestion") or units.ABSENT)],
    ]
    tables = [PageTable(f"Tuning: {tuned.name}", ["what", "outcome"], rows, (1,))]
    if best:
        settings = [
            [key, setting_text(best["settings"][key]), setting_text(value)]
            for key, value in outcome["defaults"].items()
        ]
        tables.append(PageTable("Settings", ["setting", "best", "default"], settings))
    failed = [point for point in outcome["points"] if point["figure"] is None]
    if failed:
        listed = [[str(point["point"]), changed_settings(tuned, point)] for point in failed[:_FAILED_MAX]]
        tables.append(PageTable(f"Points that failed: {len(failed)}", ["point", "settings"], listed, (1,)))
    lines = [[str(index), line] for index, line in enumerate(tune_conditions(tuned), 1)]
    return [*tables, PageTable("Conditions", ["", ""], lines, (1,))]


def _dips_table(run: Run) -> PageTable | None:
    log, machine = read_log(run.directory), read_machine(run.directory)
    dips = find_dips(run.samples(), log, machine, open_loop=is_open_loop(run.result))
    if not dips:
        return None
    rows = [
        [
            f"{dip.begin_s:.1f}",
            f"{dip.end_s:.1f}",
            units.rate(dip.lowest_bytes_per_s),
            f"{100 * dip.lowest_bytes_per_s / dip.median_bytes_per_s:.0f} %",
            "; ".join(dip.meanwhile) or "nothing else is known of that time",
        ]
        for dip in dips[:_DIPS_MAX]
    ]
    more = f", the first {_DIPS_MAX} of {len(dips)}" if len(dips) > _DIPS_MAX else ""
    seconds = "virtual s" if run.domain == SIMULATED else "s"
    headings = [f"from, {seconds}", f"to, {seconds}", "lowest", "of the median", "meanwhile"]
    return PageTable(f"Dips below half of the median goodput: {run.name}{more}", headings, rows, (4,))


def _scan_tables(scan: Scan, rows: Sequence[Row]) -> list[PageTable]:
    conditions = PageTable(
        "Conditions", ["", ""], [[str(k), line] for k, line in enumerate(scan_conditions(scan, rows), 1)], (1,)
    )
    tables = [conditions]
    if limits := limits_table(rows):
        tables.append(
            PageTable("What limited the points", ["limited by", "readings"], [[a, str(n)] for a, n in limits])
        )
    failed = [row for row in rows if row["status"] != "complete"]
    if failed:
        points = {point.number: point.words() for point in scan.plan.points}
        listed = [
            [points[row["point"]], str(row["repeat"]), row["status"], str(row["reason"])]
            for row in failed[:_FAILED_MAX]
        ]
        more = f", the first {_FAILED_MAX} of {len(failed)}" if len(failed) > _FAILED_MAX else ""
        tables.append(PageTable(f"Readings that failed{more}", ["point", "repeat", "status", "reason"], listed, (2, 3)))
    wanted = len(scan.plan.points) * scan.plan.repeats
    if len(scan.rows) < wanted:
        tables.append(PageTable("Not complete", ["readings"], [[f"{len(scan.rows)} of {wanted} were taken so far"]]))
    return tables


def render(parts: Sequence[Part], sources: Sequence[str], title: str, made: datetime) -> str:
    """The page, with every figure in it."""
    jinja2 = extras.need("jinja2", "the page of a report")
    template_text = (Path(__file__).parent / "page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    count = 0
    shown: list[dict[str, Any]] = []
    for part in parts:
        drawings = []
        for drawing in part.drawings:
            count += 1
            drawings.append(
                {
                    "svg": page_svg(drawing.draw, count),
                    **{key: getattr(drawing, key) for key in ("title", "label", "conditions", "headings", "rows")},
                }
            )
        shown.append(
            {
                "heading": part.heading,
                "anchor": part.anchor,
                "label": domain_label(part.domain),
                "simulated": part.domain == SIMULATED,
                "tables": part.tables,
                "drawings": drawings,
            }
        )
    page: str = environment.from_string(template_text).render(
        title=title,
        made=made.strftime("%Y-%m-%d %H:%M UTC"),
        version=incast.__version__,
        sources=list(sources)[:_SOURCES_MAX],
        domains={part.domain for part in parts},
        parts=shown,
    )
    return page


def write_report(parts: Sequence[Part], folder: Path, page: str, *, dark: bool) -> list[str]:
    """The page and its figures below that folder; the names of what was written."""
    kinds = [("", LIGHT, "png"), ("", LIGHT, "pdf"), *([("-dark", DARK, "png")] if dark else [])]
    figures = folder / FIGURES_NAME
    figures.mkdir(parents=True, exist_ok=True)
    written = [PAGE_NAME]
    names: set[str] = set()
    for part in parts:
        for drawing in part.drawings:
            name, number_ = drawing.name, 2
            while name in names:
                name, number_ = f"{drawing.name}-{number_}", number_ + 1
            names.add(name)
            for suffix, theme, file_format in kinds:
                path = figures / f"{name}{suffix}.{file_format}"
                save(drawing.draw, theme, str(path), file_format, [f"{drawing.label}:", *drawing.conditions])
                written.append(str(path.relative_to(folder)))
    replace_file(folder / PAGE_NAME, page)
    return written
