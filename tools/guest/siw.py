"""Builds soft-iWARP for the guest, which Debian's kernel leaves out: from the kernel's own source, against its headers,
all of which is fetched and forgotten again. Some 20 seconds, once.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from guest import image

FOLDER = "drivers/infiniband/sw/siw"
KBUILD = "obj-m := siw.o\nsiw-y := {}\n"
TOOLS = ("make", "xz-utils")  # that a host with a compiler may lack


def packages(version: str) -> list[str]:
    """Of a kernel version as 6.1.0-56-amd64."""
    series = ".".join(version.split(".")[:2])
    common = version.rpartition("-")[0] + "-common"
    names = [f"linux-headers-{version}", f"linux-headers-{common}", f"linux-kbuild-{series}"]
    return [*names, f"linux-source-{series}", *TOOLS]


def unpack_source(package: Path, folder: Path, xz: Path) -> Path:
    """The driver's sources, out of an archive in an archive of 1 GB."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as outer:
        inner = ["tar", "-x", "-f", "-", "-O", "--wildcards", "./usr/src/linux-source-*.tar.xz"]
        with subprocess.Popen(inner, stdin=outer.stdout, stdout=subprocess.PIPE) as archive:
            last = ["tar", "-x", f"--use-compress-program={xz}", "-f", "-", "-C", str(folder), "--strip-components=1"]
            last += ["--wildcards", f"*/{FOLDER}"]
            subprocess.run(last, stdin=archive.stdout, check=True, capture_output=True)
    return folder / FOLDER


def build(folder: Path, version: str) -> Path:
    """The module, made in `folder`."""
    apt = image.Apt(folder)
    files = apt.fetch_alone("packages", packages(version))
    source = next(file for file in files if file.name.startswith("linux-source"))
    unpacked = folder / "unpacked"
    image.unpack([file for file in files if file != source], unpacked)
    headers = unpacked / "usr" / "src" / f"linux-headers-{version}"
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{headers.parent}/"))
    programs = unpacked / "usr" / "bin"
    driver = unpack_source(source, folder, programs / "xz")
    units = sorted(file.with_suffix(".o").name for file in driver.glob("siw_*.c"))
    (driver / "Kbuild").write_text(KBUILD.format(" ".join(units)))
    image.must(programs / "make", "-s", "-C", headers, f"M={driver}", "modules")
    image.must("strip", "--strip-debug", driver / "siw.ko")
    return driver / "siw.ko"


def ensure() -> None:
    """The module lies in the image, built now if it is not there. Raises image.UnavailableError."""
    made = image.ensure()
    modules = next((made / "layer" / "usr" / "lib" / "modules").iterdir())
    place = modules / "siw.ko"
    if place.is_file():
        return
    missing = [word for word in ("gcc-12", "strip") if not shutil.which(word)]
    if missing:
        raise image.UnavailableError(f"soft-iWARP is built here, and this host has no {', '.join(missing)}")
    with image.alone(image.cache_folder()):
        if place.is_file():
            return
        with tempfile.TemporaryDirectory(dir=image.cache_folder(), prefix="making-") as folder:
            try:
                file = build(Path(folder), modules.name)
            except (OSError, subprocess.SubprocessError, StopIteration) as error:
                raise image.UnavailableError(f"building soft-iWARP failed: {error}") from error
            file.rename(place)
