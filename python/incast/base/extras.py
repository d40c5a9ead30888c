"""Libraries of optional extras, imported where they are used; without them one line says what to install."""

import importlib
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from incast.base.errors import OneLineError

EXIT_MISSING = 1

# Which extra of pyproject.toml brings a library.
EXTRA_OF = {
    "uproot": "root",
    "awkward": "root",
    "matplotlib": "lab",
    "jinja2": "lab",
    "polars": "lab",
    "ClusterShell": "hosts",
    "distributed": "dask",
    "optuna": "tune",
}
USED_FOR = {
    "root": "ROOT files",
    "lab": "reports, and tables as Parquet",
    "hosts": "runs over many hosts",
    "dask": "scans over a cluster",
    "tune": "the search for the best settings",
}


def is_here(library: str) -> bool:
    """Whether it can be imported."""
    try:
        importlib.import_module(library)
    except ImportError:
        return False
    return True


def what_to_install(library: str) -> str:
    """As it ends a line about one that is not here."""
    name = library.partition(".")[0]
    python = Path(sys.executable)
    with suppress(ValueError):
        python = python.relative_to(Path.cwd())
    return f"needs {name}: {shlex.quote(str(python))} -m pip install 'incast[{EXTRA_OF[name]}]'"


def need(library: str, purpose: str) -> ModuleType:
    """The library; OneLineError, one line, if it is not here. `purpose` begins that line."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise OneLineError(f"{purpose} {what_to_install(library)}", EXIT_MISSING) from error
