"""What modules for the guest's kernel are built from and with: Debian's headers, and files of its kernel source."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from guest import image

TOOLS = ("make", "xz-utils")  # that a host with a compiler may lack


def packages(version: str) -> list[str]:
    """Of a kernel version as 6.1.0-56-amd64."""
    series = ".".join(version.split(".")[:2])
    common = version.rpartition("-")[0] + "-common"
    names = [f"linux-headers-{version}", f"linux-headers-{common}", f"linux-kbuild-{series}"]
    return [*names, f"linux-source-{series}", *TOOLS]


@dataclass(frozen=True)
class Tree:
    """headers: what a module is built against; source: the package with the kernel's own files."""

    headers: Path
    programs: Path
    source: Path

    def unpack(self, wanted: Sequence[str], folder: Path) -> None:
        """Files and folders of the kernel source, out of an archive in an archive of 1 GB, which takes some seconds."""
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(self.source)], stdout=subprocess.PIPE) as outer:
            inner = ["tar", "-x", "-f", "-", "-O", "--wildcards", "./usr/src/linux-source-*.tar.xz"]
            with subprocess.Popen(inner, stdin=outer.stdout, stdout=subprocess.PIPE) as archive:
                last = ["tar", "-x", f"--use-compress-program={self.programs / 'xz'}", "-f", "-"]
                last += ["-C", str(folder), "--strip-components=1", "--wildcards", *(f"*/{name}" for name in wanted)]
                subprocess.run(last, stdin=archive.stdout, check=True, capture_output=True)


def fetch(folder: Path, version: str) -> Tree:
    """Into `folder`, where it has to stay. Raises image.UnavailableError."""
    missing = [word for word in ("gcc-12", "strip") if not shutil.which(word)]
    if missing:
        raise image.UnavailableError(f"modules are built here, and this host has no {', '.join(missing)}")
    files = image.Apt(folder).fetch_alone("packages", packages(version))
    source = next(file for file in files if file.name.startswith("linux-source"))
    unpacked = folder / "unpacked"
    image.unpack([file for file in files if file != source], unpacked)
    headers = unpacked / "usr" / "src" / f"linux-headers-{version}"
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{headers.parent}/"))
    return Tree(headers, unpacked / "usr" / "bin", source)


def make(tree: Tree, folder: Path, *words: str) -> None:
    """All modules of `folder`, whose Kbuild says which; without what a debugger wants."""
    image.must(tree.programs / "make", "-s", "-C", tree.headers, f"M={folder}", *words, "modules")
    for module in folder.rglob("*.ko"):
        image.must("strip", "--strip-debug", module)
