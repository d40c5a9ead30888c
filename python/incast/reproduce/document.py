"""docs/reproduction.md, written from rows and their findings."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from incast.base.files import replace_file
from incast.reproduce.laboratory import Outcome
from incast.reproduce.model import Value

_HEAD = """# Published results, and ours

Made by `incast reproduce --all --write-docs docs/reproduction.md`; not to be edited. **Everything in the column
"ours" is simulated**, in virtual time, by the engine on the files in `fabrics/`, or computed by a formula. `incast
reproduce ROW` runs one row, `--json` prints rows as a list of objects, and `incast reproduce --all` takes about ten
minutes of one core, once: figures are kept in `incast-results/reproduce`, and with every call one kept row is run
again and must give the same to the last bit.

What a row claims depends on its class, which is laid down with the row and is not improved by the outcome:

| class | means | ok if |
|---|---|---|
| arithmetic | follows from stated rates | within 5 % |
| input | a parameter of the model | within 5 %, which only shows that it arrives |
| fitted | a parameter was chosen to match it | within 5 %, which shows nothing more |
| predicted | the model must give it without being fitted to it | within 5 %, and under half of the null model's error |
| shape | an inequality or an order | it holds over the whole range of what is unknown; of several, all hold |
| bound | what the network allows at most, or takes at least | what was published is below it, or above |
| requirement | what a system asks for: a scenario | the simulated network meets it |

The null model is an idle network: link rate less headers. It takes no simulation, so a prediction must do better.
Status: **ok**; **off**; **range**: what is not published (buffer sizes, thresholds, rates inside a switch) decides,
and the published value lies within what plausible values give; **needs ...**: a part of Incast that is not there yet,
or a value that was never published. The unit stands at the end of the conditions. Sources: S1 J. Phys. Conf. Ser. 898
082007 (2017). S2 RapidIO in a DAQ system, IEEE-NPSS Real Time 2016. S3 EPJ Web Conf. 245 01011 (2020). S4 RIOZMQ,
slides (2017). S5 J. Phys. Conf. Ser. 331 022008 (2011).

| row | class | source | conditions | published | ours | error | null model | status |
|---|---|---|---|---|---|---|---|---|
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
    return "".join(lines)


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
    yield from outcome.finding.remarks


def rows_of_document(text: str) -> list[tuple[str, str, str, str]]:
    """Id, class, published value and status of each row of such a document."""
    table = text.partition("| row | class |")[2].partition("\n## ")[0]
    found = (_ROW.match(line) for line in table.splitlines()[2:])
    return [(each[1], each[2], each[3], each[4]) for each in found if each]


def write_document(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Replaces that file."""
    replace_file(path, document_text(outcomes))
