"""`incast mep` and `incast import-root`: the command line of incast.mep and incast.import_root.

Both are imported when they are used: numpy and uproot take longer to load than most commands to run.
"""

import contextlib
import dataclasses
import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from incast.base import extras
from incast.cli.options import JsonOption
from incast.engine.quantity import parse

EXIT_BAD_FILE = 1
EXIT_USAGE = 2
mep_app = typer.Typer(
    help="Look into files of built events (MEP), check, rearrange and export them.", no_args_is_help=True
)


class Report(Protocol):
    """What the functions behind these commands give back."""

    def lines(self) -> list[str]:
        """For a person."""


class Verdict(Report, Protocol):
    """A report that says yes or no."""

    @property
    def ok(self) -> bool:
        """Whether all is as it should be."""


def parse_size(text: str) -> int:
    """Bytes of `65536`, `64KiB`, `1.5 MB`: the sizes that the engine understands."""
    found = parse("bytes", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size such as 64KiB")
    return round(found)


def parse_groups(texts: list[str]) -> dict[str, list[str]]:
    """`jets=Jet_*,nJet` as the name and its patterns."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        name, equals, patterns = text.partition("=")
        if not (name and equals and patterns):
            raise typer.BadParameter(f"{text!r} is not NAME=PATTERN,...")
        groups[name] = [*groups.get(name, []), *patterns.split(",")]
    return groups


def _plain(value: Any) -> Any:
    """What json.dumps cannot write by itself."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def _print_report(report: Report, *, as_json: bool, **more: Any) -> None:
    if as_json:
        typer.echo(json.dumps(_plain(report) | more, default=_plain, indent=2))
    else:
        typer.echo("\n".join(report.lines()))


def _print_verdict(verdict: Verdict, *, as_json: bool) -> None:
    _print_report(verdict, as_json=as_json, ok=verdict.ok)
    if not verdict.ok:
        raise typer.Exit(EXIT_BAD_FILE)


def _refuse(words: str, status: int) -> typer.Exit:
    typer.echo(f"incast: {' '.join(words.split())}", err=True)
    return typer.Exit(status)


@contextlib.contextmanager
def _one_line_for_bad_files() -> Iterator[None]:
    """A file that is absent or is not what it should be is the person's to mend: one line, no traceback."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in extras.EXTRA_OF:
            raise
        raise _refuse(f"this {extras.what_to_install(error.name)}", EXIT_USAGE) from error
    except OSError as error:
        words = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        raise _refuse(words, EXIT_BAD_FILE) from error
    except Exception as error:
        # FormatError is a ValueError. What damaged ROOT files raise has no common base: zlib's, struct's, uproot's own.
        if not isinstance(error, ValueError) and not _raised_under(error, "uproot"):
            raise
        raise _refuse(str(error) or type(error).__name__, EXIT_BAD_FILE) from error


def _raised_under(error: Exception, package: str) -> bool:
    """Whether the error came out of a call into this package."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(frame.f_globals.get("__name__", "")).split(".")[0] == package for frame, _ in frames)


@mep_app.command()
def show(
    path: Annotated[Path, typer.Argument(help="A file of MEPs, or a folder of them.")],
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="MEPs to show.")] = 10,
    fragments: Annotated[int, typer.Option(metavar="N", min=0, help="Fragments of each MFP to show as bytes.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show what built events consist of."""
    with _one_line_for_bad_files():
        from incast.data import mep

        _print_report(mep.show(path, limit=limit, fragments=fragments), as_json=as_json)


@mep_app.command()
def check(
    paths: Annotated[list[Path], typer.Argument(help="A folder of MEPs, with its manifests, or files of them.")],
    as_json: JsonOption = False,
) -> None:
    """Read every byte and say whether all is there once, whole, and as the manifests say. Exit status 1 if not."""
    with _one_line_for_bad_files():
        from incast.data import mep

        _print_verdict(mep.check(*paths), as_json=as_json)


@mep_app.command()
def compare(
    path: Annotated[Path, typer.Argument(help="The folder of built events.")],
    root_file: Annotated[Path, typer.Option("--root", metavar="FILE", help="The ROOT file they were imported from.")],
    sources: Annotated[
        Path, typer.Option("--sources", metavar="DIR", help="What `incast import-root` wrote (or its sources.json).")
    ],
    as_json: JsonOption = False,
) -> None:
    """Compare built events with the tree they come from, branch by branch, bit by bit. Exit status 1 if they differ."""
    with _one_line_for_bad_files():
        from incast.data import import_root as importer

        _print_verdict(importer.compare(root_file, sources, path), as_json=as_json)


@mep_app.command()
def split(
    path: Annotated[Path, typer.Argument(help="A file of MEPs, or a folder of them.")],
    output: Annotated[Path, typer.Option(metavar="DIR", help="A new or empty folder for the files.")],
    meps: Annotated[int, typer.Option(metavar="N", min=1, help="MEPs in each file.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Write the same MEPs into files of one each, for readers that take only one."""
    with _one_line_for_bad_files():
        from incast.data import mep_rearrange

        _print_report(mep_rearrange.split(path, output, meps), as_json=as_json)


@mep_app.command()
def merge(
    paths: Annotated[list[Path], typer.Argument(help="Files of MEPs, or folders of them.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The new file.")],
    as_json: JsonOption = False,
) -> None:
    """Write the MEPs of all into one file, in the order of their events."""
    with _one_line_for_bad_files():
        from incast.data import mep_rearrange

        _print_report(mep_rearrange.merge(paths, output), as_json=as_json)


@mep_app.command()
def sources(
    paths: Annotated[list[Path], typer.Argument(help="Files of MEPs, or folders of them.")],
    output: Annotated[Path, typer.Option(metavar="DIR", help="A new or empty folder for the sources.")],
    as_json: JsonOption = False,
) -> None:
    """Write the MFPs of built events as source files, for `incast run --source DIR`: events are built again."""
    with _one_line_for_bad_files():
        from incast.data import mep_rearrange

        _print_report(mep_rearrange.sources(paths, output), as_json=as_json)


@mep_app.command()
def unpack(
    paths: Annotated[list[Path], typer.Argument(help="Files of MEPs of a second stage, or folders of them.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The new file.")],
    as_json: JsonOption = False,
) -> None:
    """Write what two stages built as one stage would have: super-fragments become the MFPs in them."""
    with _one_line_for_bad_files():
        from incast.data import stages

        _print_report(stages.unpack(paths, output), as_json=as_json)


@mep_app.command()
def export(
    paths: Annotated[list[Path], typer.Argument(help="Files of MEPs, or folders of them.")],
    mdf: Annotated[
        Path | None, typer.Option("--mdf", metavar="FILE", help="A new file in LHCb's raw event format (MDF).")
    ] = None,
    meps: Annotated[
        Path | None,
        typer.Option("--mep", metavar="FILE", help="A new file of MEPs; missing fragments are LHCb's error banks."),
    ] = None,
    checksum: Annotated[
        bool, typer.Option(help="MDF: write a checksum of each event, or 0, which readers pass over.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write built events for LHCb's readers: one by one as raw banks, or as MEPs in which nothing is Incast's own."""
    with _one_line_for_bad_files():
        from incast.data import mep_export as exports

        if mdf is not None and meps is None:
            report = exports.export_mdf(paths, mdf, checksum=checksum)
        elif meps is not None and mdf is None:
            report = exports.export_meps(paths, meps)
        else:
            raise _refuse("expected one of --mdf FILE and --mep FILE", EXIT_USAGE)
        _print_report(report, as_json=as_json)


def import_root(
    file: Annotated[Path, typer.Argument(help="A ROOT file with a TTree, TNtuple or RNTuple.")],
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the MFP files go. (default: ./<name of the file>-mfp)")
    ] = None,
    tree: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The tree, by its path in the file. (default: the only one, or Events)"),
    ] = None,
    packing: Annotated[
        int | None, typer.Option(metavar="N", help="Events per MFP. (default: what makes --mfp-size)")
    ] = None,
    mfp_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Mean size of an MFP. (default: 64KiB, less for a small tree)"),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATTERN,...", help="Branches that make one source; may be repeated. (default: by name)"
        ),
    ] = None,
    detector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP=ID[:TYPE[:VERSION]]",
            help="Source id, fragment type and version of a group. May be repeated: then every group needs one. "
            "'odin' adds a source with ODIN's banks.",
        ),
    ] = None,
    max_events: Annotated[int | None, typer.Option(metavar="N", help="Import the first events only.")] = None,
    skip_unsupported: Annotated[
        bool, typer.Option("--skip-unsupported", help="Leave out, and list, branches that cannot be imported.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Remove the files of an earlier import from that folder first.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn the tree of a ROOT file into MFP files, one source per group of branches, for `incast run --source DIR`."""
    mfp_bytes = None if mfp_size is None else parse_size(mfp_size)
    groups = parse_groups(group) if group else None
    with _one_line_for_bad_files():
        from incast.data import import_root as importer
        from incast.data.detectors import parse_detectors

        summary = importer.import_root(
            file,
            output or Path(f"{file.stem}-mfp"),
            tree,
            packing=packing,
            mfp_bytes=mfp_bytes,
            groups=groups,
            detectors=parse_detectors(detector or []),
            max_events=max_events,
            skip_unsupported=skip_unsupported,
            force=force,
        )
        _print_report(summary, as_json=as_json)
