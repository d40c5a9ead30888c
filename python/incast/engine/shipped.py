"""The networks that come with Incast: of the installed package, or of the checkout (fabrics/README.md)."""

from pathlib import Path

from incast.base.errors import EXIT_BAD_CONFIG, OneLineError
from incast.base.places import CHECKOUT, PACKAGE

FOLDERS = (PACKAGE / "_fabrics", CHECKOUT / "fabrics")


def shipped_fabric(name: str) -> Path | None:
    """The shipped file of that name, with or without .toml; None if there is none."""
    if not name or Path(name).name != name:
        return None
    files = (folder / f"{name.removesuffix('.toml')}.toml" for folder in FOLDERS)
    return next((file for file in files if file.is_file()), None)


def shipped_fabrics() -> list[Path]:
    """All of them, by name; of the installed package, if there is one."""
    return next((sorted(folder.glob("*.toml")) for folder in FOLDERS if folder.is_dir()), [])


def fabric_file(named: str) -> Path:
    """What a person means: the file of that path, or else the shipped one of that name."""
    path = Path(named)
    if path.is_file():
        return path
    found = shipped_fabric(named)
    if found is None and named and path.name == named and not path.exists():
        names = ", ".join(file.stem for file in shipped_fabrics())
        raise OneLineError(
            f"{named}: no such file, and no network of that name is shipped; shipped: {names}", EXIT_BAD_CONFIG
        )
    return found or path
