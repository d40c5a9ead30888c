"""Builds RapidIO for the guest: the kernel's own drivers, which Debian leaves out, and this project's master port
(kernel/). Headers and drivers stay beside the guest's image, and the port below build/guest-kernel: a change of kernel/
builds the port alone.
"""

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from guest import debug_kernel, image, kernel_tree

ROOT = Path(__file__).resolve().parents[2]
PORT = ROOT / "kernel"
BUILT = ROOT / "build" / "guest-kernel"
SOURCES = ("drivers/rapidio", "drivers/net/rionet.c")
# What the kernel's configuration would say (drivers/rapidio/Kconfig, drivers/net/Kconfig).
WORDS = {
    "CONFIG_RAPIDIO": 1,
    "CONFIG_RAPIDIO_DMA_ENGINE": 1,
    "CONFIG_RAPIDIO_DISC_TIMEOUT": 30,
    "CONFIG_HAS_RAPIDIO": 1,
    "CONFIG_RIONET_TX_SIZE": 128,
    "CONFIG_RIONET_RX_SIZE": 128,
}
KBUILD = f"""ccflags-y += -I$(src) {" ".join(f"-D{name}={value}" for name, value in WORDS.items())}
obj-m += rapidio.o rio-scan.o rio_cm.o rionet.o devices/rio_mport_cdev.o
rapidio-y := rio.o rio-access.o rio-driver.o rio-sysfs.o
"""
DRIVERS = ("rapidio.ko", "rio-scan.ko", "rio_cm.ko", "rionet.ko", "devices/rio_mport_cdev.ko")


def build_drivers(place: Path, version: str) -> None:
    """Headers and drivers, in `place` for good; `place`/tree says where the headers are."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    tree = kernel_tree.fetch(place, version)
    tree.unpack(SOURCES, place)
    drivers = place / "drivers" / "rapidio"
    shutil.copy(place / "drivers" / "net" / "rionet.c", drivers)
    (drivers / "Makefile").unlink()
    (drivers / "Kbuild").write_text(KBUILD)
    kernel_tree.make(tree, drivers)
    shutil.rmtree(place / "packages")
    (place / "done").touch()


@dataclass(frozen=True)
class Drivers:
    """The kernel's own modules, and the tree that another module is built against. `name` changes with them."""

    name: str
    tree: kernel_tree.Tree
    symbols: Path | None  # what the modules export, where it is not in the tree
    modules: tuple[Path, ...]


def of_debian() -> Drivers:
    """For the kernel of the image."""
    version = next((image.ensure() / "layer" / "usr" / "lib" / "modules").iterdir()).name
    recipe = hashlib.sha256(Path(__file__).read_bytes() + Path(kernel_tree.__file__).read_bytes()).hexdigest()[:12]
    place = image.cache_folder() / f"rapidio-{version}-{recipe}"
    with image.alone(image.cache_folder()):
        if not (place / "done").is_file():
            build_drivers(place, version)
    headers = place / "unpacked" / "usr" / "src" / f"linux-headers-{version}"
    tree = kernel_tree.Tree(headers, place / "unpacked" / "usr" / "bin", place)
    drivers = place / "drivers" / "rapidio"
    return Drivers(place.name, tree, drivers / "Module.symvers", tuple(drivers / name for name in DRIVERS))


def of_debug_kernel() -> Drivers:
    """For the kernel that watches itself."""
    place = debug_kernel.ensure()
    tree = kernel_tree.Tree(place / "source", place / "tools" / "usr" / "bin", place)
    modules = tuple(sorted((place / "modules").iterdir()))
    return Drivers(place.name, tree, None, modules)


def build_port(drivers: Drivers, folder: Path) -> None:
    """rio_soft.ko in `folder`, and the drivers' modules with it."""
    making = folder.parent / "making"
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(PORT, making)
    symbols = [f"KBUILD_EXTRA_SYMBOLS={drivers.symbols}"] if drivers.symbols else []
    kernel_tree.make(drivers.tree, making, "KCFLAGS=-Werror", *symbols)
    modules = making / "modules"
    modules.mkdir()
    for file in (making / "rio_soft.ko", *drivers.modules):
        shutil.copy(file, modules)
    modules.rename(folder)
    shutil.rmtree(making)


def ensure() -> Path:
    """The folder of all modules, for the kernel that guests boot; built now if they are not there. Raises
    image.UnavailableError.
    """
    try:
        drivers = of_debug_kernel() if debug_kernel.wanted() else of_debian()
        sources = hashlib.sha256(drivers.name.encode())
        for file in sorted(PORT.iterdir()):
            if file.suffix in (".c", ".h") or file.name == "Kbuild":
                sources.update(file.name.encode() + b"\0" + file.read_bytes())
        modules = BUILT / sources.hexdigest()[:12]
        with image.alone(BUILT):
            if not modules.is_dir():
                build_port(drivers, modules)
    except (OSError, subprocess.SubprocessError, StopIteration) as error:
        raise image.UnavailableError(f"building RapidIO failed: {error}") from error
    return modules
