"""Makes the guest from packages of Debian, as any user, and installs nothing: apt fetches them, and they are unpacked
into the cache (`INCAST_GUEST_CACHE`, or incast/guest in the XDG cache).

What it makes, in a folder whose name changes with this file and with inside/init.sh:

    vmlinux      Debian's kernel, without the wrapper that would unpack itself
    initrd       a static busybox, the modules that the root needs, and inside/init.sh
    layer/       programs and modules that the guest has in addition to those of this host
    qemu/        QEMU with its libraries
"""

import contextlib
import fcntl
import hashlib
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = (
    "busybox-static",
    "ethtool",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "iputils-ping",
    "kmod",
    "perftest",
    "rdmacm-utils",
)
QEMU = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
KERNEL = "linux-image-amd64"
# What a root needs; each with what it depends on.
ROOT_MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")
# Of the kernel's modules only the folders that soft devices need: a tenth of all.
MODULE_FOLDERS = (
    "arch",
    "crypto",
    "drivers/infiniband/core",
    "drivers/infiniband/sw",
    "drivers/net/*.ko",
    "drivers/virtio",
    "drivers/char/virtio_console.ko",
    "fs/9p",
    "fs/configfs",
    "fs/fscache",
    "fs/netfs",
    "fs/overlayfs",
    "lib",
    "net",
)


class UnavailableError(Exception):
    """Why this host cannot have the guest."""


def cache_folder() -> Path:
    """Where all images lie."""
    named = os.environ.get("INCAST_GUEST_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "incast" / "guest"


def recipe() -> str:
    """Another image needs another folder."""
    parts = [Path(__file__).read_bytes(), (HERE / "inside" / "init.sh").read_bytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def check_host() -> None:
    """Raises UnavailableError where the packages would not fit this host: the guest has its libraries."""
    release = {}
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
    system = release.get("PRETTY_NAME", platform.system())
    if (release.get("ID"), release.get("VERSION_ID")) != ("debian", "12"):
        raise UnavailableError(f"the guest is made of packages of Debian 12, and this host has {system}")
    if platform.machine() != "x86_64":
        raise UnavailableError(f"the guest has x86-64 programs of this host, which is {platform.machine()}")
    missing = [word for word in ("apt-get", "dpkg-deb", "tar", "setpriv") if not shutil.which(word)]
    if missing:
        raise UnavailableError(f"this host has no {', '.join(missing)}")


def must(*words: str | Path, cwd: Path | None = None) -> str:
    """Output of a command that has to succeed."""
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise UnavailableError(f"{command[0]} failed: {lines[-1] if lines else done.returncode}")
    return done.stdout


class Apt:
    """Fetches packages; with lists of its own where those of the host are missing or older than the mirror."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._options = ["-q"]
        self._set("Debug::NoLocking=true", "APT::Sandbox::User=root", "APT::Update::Error-Mode=any")
        self._set("Acquire::http::Timeout=15", "Acquire::Retries=1")
        self._renewed = False

    def _set(self, *options: str) -> None:
        for option in options:
            self._options += ["-o", option]

    def _renew(self) -> None:
        lists = self._folder / "lists"
        (lists / "partial").mkdir(parents=True)
        self._set(f"Dir::State::lists={lists}", f"Dir::Cache={self._folder}")
        must("apt-get", *self._options, "update")
        self._renewed = True

    def _try(self, *words: str, cwd: Path | None = None) -> str:
        try:
            return must(words[0], *self._options, *words[1:], cwd=cwd)
        except UnavailableError:
            if self._renewed:
                raise
            self._renew()
            return must(words[0], *self._options, *words[1:], cwd=cwd)

    def kernel_version(self) -> str:
        """Of the kernel that Debian installs now, as 6.1.0-56-amd64."""
        found = re.search(r"Depends: linux-image-(\S+)", self._try("apt-cache", "depends", KERNEL))
        if not found:
            raise UnavailableError(f"apt knows no kernel by the name {KERNEL}")
        return found[1]

    def fetch(self, name: str, packages: Sequence[str]) -> list[Path]:
        """Files of the packages, and of all that they need and this host lacks."""
        folder = self._folder / name
        (folder / "partial").mkdir(parents=True)
        how = ["--no-install-recommends", "--reinstall", "--download-only", "-y"]
        how += ["-o", f"Dir::Cache::archives={folder}"]
        self._try("apt-get", "install", *how, *packages)
        return sorted(folder.glob("*.deb"))

    def fetch_alone(self, name: str, packages: Sequence[str]) -> list[Path]:
        """Files of the packages and of no other."""
        folder = self._folder / name
        folder.mkdir()
        self._try("apt-get", "download", *packages, cwd=folder)
        return sorted(folder.glob("*.deb"))


def unpack(packages: Sequence[Path], into: Path) -> None:
    """All of them into one tree, with /bin, /sbin and /lib below /usr as the host has them."""
    into.mkdir(exist_ok=True)
    for package in packages:
        must("dpkg-deb", "-x", package, into)
    for name in ("bin", "sbin", "lib", "lib64"):
        if (into / name).is_dir() and not (into / name).is_symlink():
            shutil.copytree(into / name, into / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(into / name)


def unpack_kernel(package: Path, version: str, image: Path) -> None:
    """The kernel, and of its modules those that are of use."""
    base = f"./lib/modules/{version}"
    wanted = [f"{base}/kernel/{folder}" for folder in MODULE_FOLDERS] + [f"{base}/modules.*", "./boot/vmlinuz-*"]
    with tempfile.TemporaryDirectory(dir=image) as folder:
        archive = Path(folder) / "archive.tar"
        with archive.open("wb") as file:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=file, check=True)
        must("tar", "-x", "-f", archive, "-C", folder, "--wildcards", "--no-wildcards-match-slash", *wanted)
        (image / "layer" / "usr" / "lib" / "modules").mkdir(parents=True, exist_ok=True)
        (Path(folder) / base).rename(image / "layer" / "usr" / "lib" / "modules" / version)
        write_kernel((Path(folder) / "boot" / f"vmlinuz-{version}").read_bytes(), image / "vmlinux")
    depmod_root = image / "depmod"
    (depmod_root / "lib").mkdir(parents=True)
    (depmod_root / "lib" / "modules").symlink_to(image / "layer" / "usr" / "lib" / "modules")
    (depmod_root / "depmod").symlink_to(image / "layer" / "usr" / "bin" / "kmod")  # it does what its name says
    must(depmod_root / "depmod", "-b", depmod_root, version)
    shutil.rmtree(depmod_root)


def write_kernel(wrapped: bytes, path: Path) -> None:
    """An emulated processor would take two seconds to unpack it; where none is found, it has to."""
    at = wrapped.find(lzma_magic := b"\xfd7zXZ\0")
    while at >= 0:
        with contextlib.suppress(lzma.LZMAError):
            kernel = lzma.LZMADecompressor().decompress(wrapped[at:])
            if kernel.startswith(b"\x7fELF"):
                path.write_bytes(kernel)
                return
        at = wrapped.find(lzma_magic, at + 1)
    path.write_bytes(wrapped)


def modules_in_order(folder: Path) -> list[str]:
    """Files of the root's modules, each behind those that it needs."""
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        file, _, others = line.partition(":")
        needs[file] = others.split()
    files = {Path(file).name.removesuffix(".ko"): file for file in needs}
    order: list[str] = []
    for name in ROOT_MODULES:
        for file in [*reversed(needs[files[name]]), files[name]]:
            if file not in order:
                order.append(file)
    return order


def write_initrd(made: Path, layer: Path, modules: Sequence[Path]) -> None:
    """What runs before the root is there, with the modules in the order that they are loaded in."""
    root = made / "root"
    for name in ("bin", "modules", "proc", "sys", "dev", "host", "layer", "writable", "new"):
        (root / name).mkdir(parents=True)
    shutil.copy(layer / "usr" / "bin" / "busybox", root / "bin" / "busybox")
    shutil.copy(HERE / "inside" / "init.sh", root / "init")
    (root / "init").chmod(0o755)
    for file in modules:
        shutil.copy(file, root / "modules")
    (root / "modules" / "order").write_text("".join(f"{file.name}\n" for file in modules))
    names = "\0".join(str(path.relative_to(root)) for path in sorted(root.rglob("*"))) + "\0"
    packer = [str(root / "bin" / "busybox"), "cpio", "-0", "-o", "-H", "newc"]
    packed = subprocess.run(packer, cwd=root, input=names.encode(), capture_output=True, check=True)
    (made / "initrd").write_bytes(packed.stdout)
    shutil.rmtree(root)


def make(image: Path) -> None:
    """From nothing."""
    with tempfile.TemporaryDirectory(dir=image) as folder:
        apt = Apt(Path(folder))
        version = apt.kernel_version()
        unpack(apt.fetch("programs", PROGRAMS), image / "layer")
        unpack(apt.fetch("qemu", QEMU), image / "qemu")
        unpack_kernel(apt.fetch_alone("kernel", [f"linux-image-{version}"])[0], version, image)
    modules = image / "layer" / "usr" / "lib" / "modules" / version
    write_initrd(image, image / "layer", [modules / file for file in modules_in_order(modules)])


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time makes something there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure() -> Path:
    """The folder of the image, made now if it is not there. Raises UnavailableError."""
    check_host()
    folder = cache_folder()
    image = folder / recipe()
    try:
        if not image.is_dir():
            with alone(folder):
                if not image.is_dir():
                    print("guest: fetching Debian's kernel and QEMU (once)", file=sys.stderr, flush=True)
                    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as making:
                        (Path(making) / "image").mkdir()
                        make(Path(making) / "image")
                        (Path(making) / "image").rename(image)
    except (OSError, subprocess.SubprocessError, KeyError) as error:
        raise UnavailableError(f"making it failed: {error}") from error
    return image
