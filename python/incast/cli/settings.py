"""`incast settings`: what a run can be told."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from incast.base.console import folded
from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.cli.options import JsonOption
from incast.engine.settings import settings as all_settings


def settings(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Those whose name or help has all these words.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the settings of a run: default, what is allowed, and what each is (docs/config.md)."""
    wanted = [word.lower() for word in words or []]
    found = [
        setting
        for setting in all_settings().values()
        if all(word in f"{setting.key} {setting.help}".lower() for word in wanted)
    ]
    if as_json:
        typer.echo(json.dumps([asdict(setting) for setting in found], indent=2))
        return
    if not found:
        raise OneLineError(f"no setting has the words {' '.join(wanted)}; `incast settings` lists all", EXIT_BAD_CONFIG)
    for setting in found:
        default = setting.default or "(nothing)"
        typer.echo(folded(f"{setting.key} = {default}  [{setting.allowed}]", indent=8))
        typer.echo(folded(setting.help, first=" " * 4, indent=4))
