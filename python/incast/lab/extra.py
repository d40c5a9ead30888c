"""Libraries of the optional extra `lab`, imported where they are used; without them one line says what to install."""

import importlib
from types import ModuleType

from incast.engine import EngineError

EXIT_MISSING = 1


def missing(*names: str) -> list[str]:
    """Those of the modules that are not here."""
    absent = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            absent.append(name)
    return absent


def need(name: str, purpose: str) -> ModuleType:
    """The module; EngineError, one line, if it is not installed. `purpose` begins that line."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise EngineError(f"{purpose} needs {library}: pip install 'incast[lab]'", EXIT_MISSING) from error
