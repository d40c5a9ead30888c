"""Checks that a wheel runs elsewhere: its binaries need no newer glibc than 2.34, no C++ library and no path of here.

usage: portable.py WHEEL... Prints FILE: what is wrong; exit status 1 if anything is.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NEWEST_GLIBC = (2, 34)
# What every Linux with this C library has, by the first part of its name.
OF_EVERY_SYSTEM = {"libc", "libm", "libdl", "librt", "libpthread", "libgcc_s", "ld-linux-x86-64", "ld-linux-aarch64"}
# What only modules may ask for: the engine says that it is missing, and goes on without.
OF_SOME_HOSTS = {"libibverbs", "librdmacm", "libfabric", "libucp", "libucs", "libuct", "libucm", "libmpi", "libmpich"}
MODULE = re.compile(r"incast-transport-[\w-]+\.so$")


class Binary(NamedTuple):
    """What the dynamic section and the symbol versions of an ELF file say."""

    needed: list[str]
    run_paths: list[str]
    versions: set[tuple[str, str]]  # library's set of versions, version: GLIBC 2.34


def read_binary(file: Path) -> Binary:
    command = ["readelf", "--wide", "--dynamic", "--version-info", str(file)]
    return parse(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parse(said: str) -> Binary:
    """From what readelf says. Versions that a file defines itself are none that it needs."""
    needs = said.partition("Version needs section")[2]
    return Binary(
        re.findall(r"\(NEEDED\).*\[(.+)\]", said),
        [path for line in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", said) for path in line.split(":")],
        {(found[1], found[2]) for found in re.finditer(r"Name: (GLIBC|GLIBCXX|CXXABI)_([\d.]+)", needs)},
    )


def faults(name: str, binary: Binary, beside: set[str]) -> Iterator[str]:
    """What keeps it from running elsewhere; `beside` are the libraries that come along."""
    allowed = OF_EVERY_SYSTEM | (OF_SOME_HOSTS if MODULE.search(name) else set())
    for library in binary.needed:
        if library not in beside and library.partition(".so")[0] not in allowed:
            yield f"needs {library}, which not every system has"
    for kind, version in sorted(binary.versions):
        if kind != "GLIBC":
            yield f"needs {kind}_{version}: link the C++ library statically"
        elif tuple(map(int, version.split("."))) > NEWEST_GLIBC:
            yield f"needs GLIBC_{version}, newer than {'.'.join(map(str, NEWEST_GLIBC))}"
    for path in binary.run_paths:
        if not path.startswith("$ORIGIN"):
            yield f"looks for libraries in {path or 'the current folder'}"


def check_wheel(wheel: Path, root: Path = ROOT) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        files = [file for file in sorted(Path(folder).rglob("*")) if file.is_file()]
        beside = {file.name for file in files}
        binaries = 0
        for file in files:
            name, content = str(file.relative_to(folder)), file.read_bytes()
            if str(root).encode() in content:
                yield f"{name}: holds the path {root}"
            if content.startswith(b"\x7fELF"):
                binaries += 1
                for fault in faults(name, read_binary(file), beside):
                    yield f"{name}: {fault}"
        if binaries == 0:
            yield f"{wheel.name}: holds no binary"


def main(wheels: list[str]) -> int:
    found = [fault for wheel in wheels for fault in check_wheel(Path(wheel))]
    for fault in found:
        print(fault)
    print(f"{len(wheels)} wheels checked, {len(found)} findings")
    return 1 if found or not wheels else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
