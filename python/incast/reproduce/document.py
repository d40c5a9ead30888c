"""docs/reproduction.md, written from rows and their findings."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from incast.base.files import replace_file
from incast.reproduce.laboratory import Outcome
from incast.reproduce.model import Row, Value

_HEAD = """# Published results, and ours

Made by `incast reproduce --all --write-docs docs/reproduction.md`; not to be edited. **Everything in the column
"ours" is simulated**, in virtual time, by the engine on the files in `fabrics/`, or computed by a formula; but for
rows 5, 6b and 9, which are measured on this host and need the bridges of [ROOT](root.md) and [ZeroMQ](zeromq.md).
`incast reproduce ROW` runs one row, `--json` prints rows as a list of objects, and `incast reproduce --all` takes tens
of minutes of one core, once: figures are kept in `incast-results/reproduce`, and with every call one kept row is run
again and must give the same to the last bit.

What a row claims depends on its class, which is laid down with the row and is not improved by the outcome:

| class | means | ok if |
|---|---|---|
| arithmetic | follows from stated rates | within 5 % |
| input | a parameter of the model | within 5 %, which only shows that it arrives |
| fitted | a parameter was chosen to match it | within 5 %, which shows nothing more |
| predicted | the model must give it unfitted | within 5 % and half of the null model's error, for all that is unknown |
| shape | an inequality or an order | it holds for all that is unknown; of several, all hold |
| bound | what the network allows at most, or takes at least | what was published is below it, or above |
| requirement | what a system asks for: a scenario | the simulated network meets it |

The null model is an idle network: link rate less headers. It takes no simulation, so a prediction must do better.
Status: **ok**; **off**; **range**: what is not published (buffer sizes, thresholds, rates inside a switch) decides,
and the published value lies within what plausible values give; **needs ...**: a part of Incast that is not there yet,
or a value that was never published. Each device has one set of parameters, its fabric file; what is unknown is varied
around it, one value at a time, within bounds that stand [below](#what-is-unknown) with their sources and are laid down
before they are run ([0025](decisions/0025-reproduction.md)). Message size and sends are knobs, which the studies tuned.

The unit stands at the end of the conditions. Sources: S1 J. Phys. Conf. Ser. 898 082007 (2017). S2 RapidIO in a DAQ
system, IEEE-NPSS Real Time 2016. S3 EPJ Web Conf. 245 01011 (2020). S4 RIOZMQ, slides (2017). S5 J. Phys. Conf. Ser.
331 022008 (2011).

| row | class | source | conditions | published | ours | error | null model | status |
|---|---|---|---|---|---|---|---|---|
"""
_UNKNOWN = """
## What is unknown

| rows | what | key | tried | bounds from |
|---|---|---|---|---|
"""
_PICTURES = """
## The pictures of S3

Only the paper's text is at hand. What it says of a figure is the reading, and the error is that of its last digit.

| figure | read | error | rows |
|---|---|---|---|
| 2 | means 95.1, 94.8, 87.4 Gb/s; least samples of 2 s 94.7, 87.1, 66.7 | 0.05 Gb/s | 10, 11, 12 |
| 3 | Arista: some cell of 128 KiB above 80 Gb/s, every other size below | one-sided: no cell has a number | 13, 13b |
| 4 | a notable drop beyond 6 ports | a port, if each number was tried; a side or in all is not said | 14 |
| 5 | all cells below 80 Gb/s, and slower than one card | one-sided | 15 |
| 6 | above 15 Gb/s a consumer up to 256 KiB; a small gain by ECN | a factor of two, if sizes doubled | 16a, 16b |

**How rates move over hours** (figure 2) has no mechanism here, so no row claims it. Nothing in the model lasts longer
than a time-out of milliseconds: a mean over 2 s would hardly move, while the study saw samples 24 % below the mean.
What does that lasts for seconds, in hosts or in the switch's software. [roce-procedure.md](roce-procedure.md) has the
lowest 10 ms of longer runs.
"""
_ROW = re.compile(r"^\| (\w[\w -]*) \| (\w+) \| .* \| ([^|]+) \| [^|]+ \| [^|]+ \| [^|]+ \| ([^|]+) \|$")


def _number(value: float) -> str:
    return f"{value:.4g}"


def value_text(value: Value) -> str:
    """For people: four digits."""
    if value is None:
        return "-"
    if isinstance(value, list):
        joint = " ... " if len(value) == 2 else " "
        return joint.join(_number(each) for each in value)
    return value if isinstance(value, str) else _number(value)


def error_text(error: float | None) -> str:
    """In per cent."""
    return "-" if error is None else f"{100 * error:.1f} %"


def document_text(outcomes: Sequence[Outcome]) -> str:
    """The whole document."""
    lines = [_HEAD]
    lines += [f"| {' | '.join(_cells(each))} |\n" for each in outcomes]
    lines.append("\n## Row by row\n")
    for each in outcomes:
        said = list(_sentences(each))
        if said:
            lines.append(f"\n**{each.row.id}**, {each.finding.status}. {' '.join(said)}\n")
    lines += [_PICTURES, _UNKNOWN]
    lines += _unknown_lines([each.row for each in outcomes])
    return "".join(lines)


def _unknown_lines(rows: Sequence[Row]) -> Iterable[str]:
    """A line for each value that is not published, with the rows that vary it."""
    together: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        for each in row.unknowns:
            place = each.fabric or each.setting
            values = ", ".join(map(str, each.values))
            together.setdefault((each.name, place, values, each.source), []).append(row.id)
    for (name, place, values, source), ids in together.items():
        yield f"| {', '.join(ids)} | {name} | `{place}` | {values} | {source} |\n"


def _cells(outcome: Outcome) -> list[str]:
    row, finding = outcome.row, outcome.finding
    return [
        row.id,
        row.kind,
        row.source,
        row.conditions,
        value_text(row.published),
        value_text(finding.ours),
        error_text(finding.relative_error),
        error_text(finding.null_model_error),
        finding.status,
    ]


def _sentences(outcome: Outcome) -> Iterable[str]:
    if outcome.row.note:
        yield outcome.row.note
    if outcome.row.nothing_unknown:
        yield f"Nothing is varied: {outcome.row.nothing_unknown}"
    yield from outcome.finding.remarks


def rows_of_document(text: str) -> list[tuple[str, str, str, str]]:
    """Id, class, published value and status of each row of such a document."""
    table = text.partition("| row | class |")[2].partition("\n## ")[0]
    found = (_ROW.match(line) for line in table.splitlines()[2:])
    return [(each[1], each[2], each[3], each[4]) for each in found if each]


def write_document(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Replaces that file."""
    replace_file(path, document_text(outcomes))
