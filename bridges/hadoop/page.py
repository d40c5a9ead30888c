"""result.json as a page: the same jobs over each network, side by side."""

from collections.abc import Mapping, Sequence
from html import escape
from statistics import geometric_mean
from typing import Any

_STYLE = """
body { font: 15px/1.4 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.wrong { color: #b00; font-weight: bold; }
"""


def page(result: Mapping[str, Any]) -> str:
    """All of it in one file of HTML."""
    runs = result["runs"]
    machine = result["machine"]
    loads = [load for run in runs for load in run["load"]]
    parts = [
        _title(result),
        _table(("job", *(f"{_name(run)}: s, MB over the fabric" for run in runs)), _job_rows(runs)),
        *(_limits(run) for run in runs),
        *(_faults(run) for run in runs),
        _management(runs),
        f"<p>Hadoop {escape(result['hadoop'])}, {escape(result['java'])}; {escape(machine['cpu_model'])}, "
        f"{machine['cores']} cores, Linux {escape(machine['kernel'])}; {escape(result['started_utc'])}. All hosts are "
        "network namespaces of one machine, and blocks are in memory. A job's time has the start of its processes in "
        f"it. Each job ran once, at a load of {min(loads):.1f} to {max(loads):.1f}: small differences say nothing.</p>",
    ]
    head = f'<meta charset="utf-8"><title>Hadoop over network devices</title><style>{_STYLE}</style>'
    return f"<!doctype html>\n<html><head>{head}</head><body>\n" + "\n".join(filter(None, parts)) + "\n</body></html>\n"


def _title(result: Mapping[str, Any]) -> str:
    run = result["runs"][0]
    how = "YARN" if run["framework"] == "yarn" else "LocalJobRunner"
    said = "all outputs were right" if result["valid"] else '<span class="wrong">not all of it was right</span>'
    return (
        f"<h1>Hadoop over network devices</h1>\n<p>Jobs by {how}, scale {escape(run['scale'])}: 1 name node and "
        f"{run['hosts'] - 1} data nodes, {run['replicas']} replicas of each block of {run['block_bytes'] >> 20} MiB; "
        f"{said}.</p>"
    )


def _name(run: Mapping[str, Any]) -> str:
    return str(run["network"])


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in headings)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _job_rows(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    columns = [{job["job"]: job for job in run["jobs"] if job["limit_mbit_per_s"] is None} for run in runs]
    return [[escape(name), *(_cell(column.get(name)) for column in columns)] for name in columns[0]]


def _cell(job: Mapping[str, Any] | None) -> str:
    if job is None:
        return ""
    text = f"{job['seconds']:.1f}, {job['fabric_sent_bytes'] / 1e6:.1f}"
    if rate := job.get("megabytes_per_s"):
        text += f" ({rate:.0f} MB/s by file)"
    wrong = [check for check, is_right in job["checks"].items() if not is_right]
    return f'{text} <span class="wrong">wrong: {escape(", ".join(wrong))}</span>' if wrong else text


def _limits(run: Mapping[str, Any]) -> str:
    """How much longer a job takes when hosts may send less: what depends on the network stands at the top."""
    rates = sorted({job["limit_mbit_per_s"] for job in run["jobs"] if job["limit_mbit_per_s"]}, reverse=True)
    if not rates:
        return ""
    seconds = {(job["job"], job["limit_mbit_per_s"]): job["seconds"] for job in run["jobs"]}
    names = [name for name, rate in seconds if rate is None]
    longer = {name: [seconds[name, rate] / seconds[name, None] for rate in rates] for name in names}
    names.sort(key=lambda name: geometric_mean(longer[name]), reverse=True)
    rows = [
        [escape(name), f"{seconds[name, None]:.1f}", *(f"{seconds[name, rate]:.1f} ({ratio:.2f} x)"
         for rate, ratio in zip(rates, longer[name], strict=True))]
        for name in names
    ]  # fmt: skip
    headings = ("job", "no limit", *(f"{rate:g} Mbit/s" for rate in rates))
    return (
        f"<h2>When each host may send less, over {escape(_name(run))}: seconds</h2>\n{_table(headings, rows)}\n"
        f"<p>The two that depend most on the network here: {escape(' and '.join(names[:2]))}.</p>"
    )


def _faults(run: Mapping[str, Any]) -> str:
    rows = [[escape(job["job"]), escape(job.get("fault", "")), _cell(job)] for job in run["faults"]]
    if not rows:
        return ""
    return f"<h2>Faults, over {escape(_name(run))}</h2>\n" + _table(("job", "meanwhile", "s, MB over the fabric"), rows)


def _management(runs: Sequence[Mapping[str, Any]]) -> str:
    rows = [[escape(_name(run)), *(f"{value} B" for value in run["management_bytes"].values())] for run in runs]
    headings = ("over", *runs[0]["management_bytes"])
    return "<h2>On the management interfaces, from before the daemons to the end</h2>\n" + _table(headings, rows)
