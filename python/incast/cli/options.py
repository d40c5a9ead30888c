"""Options that several commands have; those of settings take their words from the engine."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from incast.engine.settings import settings
from incast.engine.shipped import fabric_file
from incast.engine.transports import simulated

ForceOption = Annotated[
    bool, typer.Option("--force", help="Remove the files of an earlier run from the result directory first.")
]
_METAVARS = {"count": "N", "bytes": "SIZE", "duration": "TIME", "frequency": "HZ", "rate": "RATE", "real": "X"}


def option(key: str, help_: str = "", *flags: str, metavar: str | None = None, panel: str | None = None) -> Any:
    """An option for that setting. Its choices and default are the engine's; `help_` are words before them."""
    setting = settings()[key]
    words = [help_ or f"{setting.help[:1].upper()}{setting.help[1:]}."]
    if setting.choices:
        words.append(" | ".join(setting.choices) + ".")
    if setting.default and setting.kind != "boolean":
        words.append(f"(default: {setting.default})")
    choices = setting.choices
    completion = (lambda incomplete: [each for each in choices if each.startswith(incomplete)]) if choices else None
    name = metavar or _METAVARS.get(setting.kind) or key.rpartition(".")[2].upper()
    return typer.Option(*flags, metavar=name, help=" ".join(words), rich_help_panel=panel, autocompletion=completion)


FabricOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FABRIC",
        parser=fabric_file,
        help=f"Network to simulate, a file or a shipped one's name (docs/fabrics.md); means --transport {simulated()}.",
    ),
]
TraceOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Simulations: every message as a line of a CSV file (docs/simulation.md)."),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Only check the configuration; run nothing.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]


def spelled_out(command: Callable[..., None]) -> Callable[..., None]:
    """That command for typer: a parameter that is a dataclass stands for an option of each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint) and isinstance(hint, type)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if (group := groups.get(parameter.name)) is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        of_fields = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(each.name, parameter.kind, default=each.default, annotation=of_fields[each.name])
            for each in dataclasses.fields(group)
        ]

    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in dataclasses.fields(group)})
        command(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__doc__, called.__name__ = command.__doc__, command.__name__
    return called
