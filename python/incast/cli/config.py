"""`incast config`: a configuration file to begin with."""

from pathlib import Path
from textwrap import wrap
from typing import Annotated

import typer

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import new_file
from incast.engine.settings import Setting, settings

config_app = typer.Typer(help="Configuration files (docs/config.md).", no_args_is_help=True)
_BARE = {"boolean", "count", "real"}  # kinds that TOML writes without quotes
_COLUMNS = 100
_HEAD = """\
# A run of Incast: incast run {name}
# Every setting is here with its default. To change one, remove the # before its name.
# Check the file without a run: incast run {name} --check
"""


@config_app.callback()
def _group() -> None:
    """With a group the command has a name, although there is only one."""


@config_app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="The new file.")] = Path("incast.toml"),
) -> None:
    """Write a configuration file that has every setting, with its default and what is allowed."""
    try:
        with new_file(file) as out:
            out.write(_content(file.name).encode())
    except FileExistsError as error:
        raise OneLineError(f"{file} is there already; allowed: a new file's name", EXIT_BAD_CONFIG) from error
    typer.echo(f"{file} has every setting; run it with: incast run {file}")


def _content(name: str) -> str:
    sections: dict[str, list[Setting]] = {}
    for setting in settings().values():
        sections.setdefault(setting.key.rpartition(".")[0], []).append(setting)
    parts = [_HEAD.format(name=name)]
    for title, listed in sections.items():
        lines = [f"[{title}]"]
        for setting in listed:
            words = f"{setting.help} [{setting.allowed}]"
            lines += [f"# {line}" for line in wrap(words, _COLUMNS, break_long_words=False, break_on_hyphens=False)]
            lines.append(f"#{setting.key.rpartition('.')[2]} = {_value(setting)}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _value(setting: Setting) -> str:
    text = setting.default
    bare = setting.kind in _BARE and (text in ("true", "false") or text.replace(".", "", 1).isdecimal())
    return text if bare else f'"{text}"'
