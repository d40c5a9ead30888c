"""`incast man`: a manual page of every command, made from the table that `--help` shows."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

import incast
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import replace_file, writing_output

_SECTION = 1


def man(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="As in `incast man mep check`.")
    ] = None,
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the pages of all commands into that folder.")
    ] = None,
) -> None:
    """Show the manual page of a command; in a pipe, print its source."""
    found = pages()
    if output is not None:
        with writing_output(output):
            output.mkdir(parents=True, exist_ok=True)
            for name, text in found.items():
                replace_file(output / name, text)
        return
    name = f"{'-'.join(('incast', *(words or ())))}.{_SECTION}"
    if name not in found:
        known = ", ".join(sorted(page.removesuffix(f".{_SECTION}").removeprefix("incast-") for page in found))
        raise OneLineError(f"no page {name}; allowed: nothing, or one of {known}", EXIT_BAD_CONFIG)
    reader = shutil.which("man") if sys.stdout.isatty() else None
    if reader is None:
        sys.stdout.write(found[name])
    else:
        subprocess.run([reader, "-l", "-"], input=found[name].encode(), check=False)


def pages() -> dict[str, str]:
    """The source of every page (man(7)) by its file's name: `incast-mep-check.1`."""
    from incast.cli.commands import application

    tree = list(_walk(("incast",), typer.main.get_command(application())))
    return {f"{'-'.join(way)}.{_SECTION}": "\n".join(_page(way, command)) + "\n" for way, command in tree}


def _walk(way: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield way, command
    for name, below in _below(command):
        yield from _walk((*way, name), below)


def _below(command: Any) -> list[tuple[str, Any]]:
    return [(name, each) for name, each in getattr(command, "commands", {}).items() if not each.hidden]


def _page(way: tuple[str, ...], command: Any) -> Iterator[str]:
    name, context = "-".join(way), typer.Context(command, info_name=" ".join(way))
    first, *further = re.split(r"\n\s*\n", (command.help or "").strip())
    yield f'.TH {_plain(name.upper())} {_SECTION} "" "incast {incast.__version__}" "Incast"'
    yield ".SH NAME"
    yield f"{_plain(name)} \\- {_text(first).rstrip('.')}"
    yield ".SH SYNOPSIS"
    yield f".B {_plain(' '.join(way))}"
    yield _text(" ".join(command.collect_usage_pieces(context)))
    if further:
        yield ".SH DESCRIPTION"
        for number, paragraph in enumerate(further):
            yield from ([".PP"] if number else [])
            yield _text(paragraph)
    yield from _parameters(command, context)
    if below := _below(command):
        yield ".SH COMMANDS"
        for word, each in below:
            yield from (".TP", f".BR {_plain(f'{name}-{word}')} ({_SECTION})", _text(each.get_short_help_str(400)))
    if command.epilog:
        yield from (".SH UNITS", _text(command.epilog))
    if way[1:]:
        yield from (".SH SEE ALSO", f".BR {_plain('-'.join(way[:-1]))} ({_SECTION})")


def _parameters(command: Any, context: typer.Context) -> Iterator[str]:
    """Arguments, then options, in the groups of the help."""

    def group(parameter: Any) -> tuple[bool, str]:
        return parameter.param_type_name != "argument", getattr(parameter, "rich_help_panel", None) or ""

    # Sorting keeps the order within a group; options without one stand before all others.
    for (optional, panel), listed in groupby(sorted(command.get_params(context), key=group), key=group):
        records = [record for each in listed if (record := each.get_help_record(context)) is not None]
        if not records:
            continue
        if not panel:
            yield ".SH OPTIONS" if optional else ".SH ARGUMENTS"
        else:
            yield f'.SS "{_plain(panel)}"'
        for names, words in records:
            yield from (".TP", rf"\fB{_plain(names)}\fR", _text(words) or "\\&")


def _plain(text: str) -> str:
    """Letters that stand for themselves."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")


def _text(text: str) -> str:
    """A paragraph; what is between backticks is bold."""
    joined = " ".join(text.split())
    plain = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", _plain(joined))
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
