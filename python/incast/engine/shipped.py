"""The networks that come with Incast: of the installed package, or of the checkout (fabrics/README.md)."""

from pathlib import Path

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
    return path if path.is_file() else shipped_fabric(named) or path
