"""The engine's settings: names, kinds, choices, defaults and ranges, as the engine wrote them down.

They come from schema/config.schema.json, which the engine makes from the lists that it checks values against. So that
no option, choice or default stands twice, the command line takes its words for them from here; it starts no engine.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from incast.base.places import CHECKOUT, PACKAGE

_FILES = (PACKAGE / "_schema" / "config.schema.json", CHECKOUT / "schema" / "config.schema.json")


@dataclass(frozen=True)
class Setting:
    """One setting; `allowed` is what the engine says of a value that is not."""

    key: str
    kind: str
    default: str
    allowed: str
    help: str
    choices: tuple[str, ...]


@functools.cache
def schema() -> dict[str, Any]:
    """The schema that came with this package, or with the checkout."""
    file = next((file for file in _FILES if file.is_file()), _FILES[0])
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


@functools.cache
def settings() -> dict[str, Setting]:
    """All of them by key: `run.nodes`, `transport.tcp.streams`."""
    found: dict[str, Setting] = {}

    def walk(properties: Mapping[str, Any], prefix: str) -> None:
        for name, entry in properties.items():
            key = prefix + name
            if "properties" in entry:
                walk(entry["properties"], f"{key}.")
            else:
                words = (entry["x-kind"], entry["default"], entry["x-allowed"], entry["description"])
                found[key] = Setting(key, *words, tuple(entry.get("enum", ())))

    walk(schema()["properties"], "")
    return found


def is_former(key: str) -> bool:
    """Whether that was a setting's name in the last version."""
    return key in schema()["x-former-names"]


def present(key: str, value: str) -> tuple[str, str]:
    """Name and value in this version of a setting that may have the name of the last one."""
    former = schema()["x-former-names"].get(key)
    if former is None:
        return key, value
    bare = value.replace(".", "", 1).isdecimal()
    return former["present"], value + former["unit"] if bare else value


def present_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The `config` of a result with the names of this version."""
    renamed: dict[str, Any] = {}
    for name, value in config.items():
        key = prefix + name
        if isinstance(value, Mapping):
            renamed[name] = present_config(value, f"{key}.")
        elif is_former(key):
            key, text = present(key, str(value))
            renamed[key.removeprefix(prefix)] = text
        else:
            renamed[name] = value
    return renamed
