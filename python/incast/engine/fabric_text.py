"""Networks with some of their values changed: `fabric.switches.deep.spill` in a scan is `spill` of `[switches.deep]`.

The engine alone knows what a fabric file may say. Here its text is read as TOML, values are put in, and it is written
again, to be checked by the engine like any other.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.files import replace_file
from incast.engine.transports import simulated_key

PREFIX = "fabric."
_FOLDER = "fabrics"


def file_key() -> str:
    """The setting that names the file."""
    return simulated_key("fabric")


def read_fabric_text(path: Path) -> str:
    """The text of a fabric file; OneLineError, one line, if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise OneLineError(f"{file_key()}: {path} cannot be read: {why}", EXIT_BAD_CONFIG) from error


def changed(text: str, changes: Mapping[str, Any]) -> str:
    """The same network with other values; keys are dotted, and those that are not there come in.

    A value of None takes the key away, and a table replaces a table. OneLineError if a part of the way is no table.
    """
    if not changes:
        return text
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OneLineError(f"{file_key()}: no TOML: {error}", EXIT_BAD_CONFIG) from error
    for key, value in changes.items():
        *way, last = key.split(".")
        table = content
        for name in way:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise OneLineError(f"{PREFIX}{key}: {name} is no table of that fabric", EXIT_BAD_CONFIG)
        if value is None:
            table.pop(last, None)
        else:
            table[last] = value
    return "".join(f"{line}\n" for line in _lines(content, ""))


def _lines(table: Mapping[str, Any], name: str) -> Iterator[str]:
    """TOML; of texts, numbers, truth values and lists of them JSON is TOML."""
    inner: list[tuple[str, Mapping[str, Any], bool]] = []
    for key, value in table.items():
        full = f"{name}.{_quoted(key)}" if name else _quoted(key)
        if isinstance(value, Mapping):
            inner.append((full, value, False))
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            inner += [(full, each, True) for each in value]
        else:
            yield f"{_quoted(key)} = {json.dumps(value)}"
    for full, one, listed in inner:
        yield f"[[{full}]]" if listed else f"[{full}]"
        yield from _lines(one, full)


def _quoted(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else json.dumps(key)


def stored(folder: Path, text: str) -> Path:
    """The network as a file below that folder, named by its content; written if it is not there."""
    path = folder.resolve() / _FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.toml"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
    return path


def fabric_setting(folder: Path, text: str) -> tuple[str, ...]:
    """For --set: that network, stored below the folder; nothing where there is no text."""
    return (f"{file_key()}={stored(folder, text)}",) if text else ()
