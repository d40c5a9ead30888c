"""Builds soft-iWARP for the guest, which Debian's kernel leaves out: from the kernel's own source, against its headers,
all of which is fetched and forgotten again. Some 20 seconds, once.
"""

import subprocess
import tempfile
from pathlib import Path

from guest import image, kernel_tree

FOLDER = "drivers/infiniband/sw/siw"
KBUILD = "obj-m := siw.o\nsiw-y := {}\n"


def build(folder: Path, version: str) -> Path:
    """The module, made in `folder`."""
    tree = kernel_tree.fetch(folder, version)
    tree.unpack([FOLDER], folder)
    driver = folder / FOLDER
    units = sorted(file.with_suffix(".o").name for file in driver.glob("siw_*.c"))
    (driver / "Kbuild").write_text(KBUILD.format(" ".join(units)))
    kernel_tree.make(tree, driver)
    return driver / "siw.ko"


def ensure() -> None:
    """The module lies in the image, built now if it is not there. Raises image.UnavailableError."""
    made = image.ensure()
    modules = next((made / "layer" / "usr" / "lib" / "modules").iterdir())
    place = modules / "siw.ko"
    if place.is_file():
        return
    with image.alone(image.cache_folder()):
        if place.is_file():
            return
        with tempfile.TemporaryDirectory(dir=image.cache_folder(), prefix="making-") as folder:
            try:
                file = build(Path(folder), modules.name)
            except (OSError, subprocess.SubprocessError, StopIteration) as error:
                raise image.UnavailableError(f"building soft-iWARP failed: {error}") from error
            file.rename(place)
