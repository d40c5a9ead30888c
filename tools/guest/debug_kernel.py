"""Builds a debug kernel for the guest from Debian's source: with KASAN (memory used out of bounds or after it was
freed), lockdep (locks taken in an order that may deadlock) and kmemleak (memory that nothing points to any more), and
with RapidIO's drivers. It takes some ten minutes of two processors, once, and stays in the guest's cache (image.py).

    bzImage      the kernel, with all that the root needs built in; as vmlinux it does not start with KASAN
    initrd       a static busybox and inside/init.sh
    source       of kernel and drivers, built: what a module is built against
    modules      RapidIO's drivers
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from guest import image, kernel_tree

# What building a kernel needs that a host with a compiler may lack.
TOOLS = ("bc", "bison", "flex", "libelf-dev", "libelf1", "m4", *kernel_tree.TOOLS)
HEADERS = ("zlib1g-dev",)  # that libelf's ask for
# Of RapidIO's drivers, as the source has them.
DRIVERS = (
    "drivers/rapidio/rapidio.ko",
    "drivers/rapidio/rio-scan.ko",
    "drivers/rapidio/rio_cm.ko",
    "drivers/rapidio/devices/rio_mport_cdev.ko",
    "drivers/net/rionet.ko",
)
# All else is off, so that the build is short.
CONFIG = """
64BIT SMP MODULES MODULE_UNLOAD PRINTK BUG KALLSYMS KALLSYMS_ALL BLOCK PCI HYPERVISOR_GUEST PARAVIRT
SYSFS PROC_FS PROC_SYSCTL SYSCTL TMPFS SHMEM DEVTMPFS DEVMEM EPOLL EVENTFD SIGNALFD TIMERFD FUTEX POSIX_TIMERS AIO
ADVISE_SYSCALLS MEMBARRIER RSEQ MULTIUSER FILE_LOCKING FHANDLE INOTIFY_USER MMU_NOTIFIER CROSS_MEMORY_ATTACH SYSVIPC
POSIX_MQUEUE HIGH_RES_TIMERS NO_HZ_IDLE BINFMT_ELF BINFMT_SCRIPT BLK_DEV_INITRD TTY UNIX98_PTYS SERIAL_8250
SERIAL_8250_CONSOLE NAMESPACES UTS_NS IPC_NS PID_NS NET_NS USER_NS NET UNIX INET PACKET NETDEVICES NET_CORE VETH
BRIDGE DUMMY VIRTIO_MENU VIRTIO VIRTIO_PCI VIRTIO_CONSOLE VIRTIO_NET NET_9P NET_9P_VIRTIO NETWORK_FILESYSTEMS 9P_FS
OVERLAY_FS DMADEVICES RTC_CLASS HW_RANDOM X86_X2APIC X86_LOCAL_APIC X86_MPPARSE GART_IOMMU COMPAT_BRK SLUB
FRAME_POINTER UNWINDER_FRAME_POINTER DEBUG_KERNEL DEBUG_FS DEBUG_FS_ALLOW_ALL STACKTRACE RAPIDIO_DMA_ENGINE
KASAN KASAN_GENERIC KASAN_OUTLINE KASAN_VMALLOC PROVE_LOCKING LOCKDEP DEBUG_ATOMIC_SLEEP DEBUG_LIST DEBUG_KMEMLEAK
DETECT_HUNG_TASK IKCONFIG IKCONFIG_PROC
"""
PORTS = "RAPIDIO RAPIDIO_ENUM_BASIC RAPIDIO_CHMAN RAPIDIO_MPORT_CDEV RIONET"
VALUES = """
CONFIG_RAPIDIO_DISC_TIMEOUT=30
CONFIG_RIONET_TX_SIZE=128
CONFIG_RIONET_RX_SIZE=128
CONFIG_LOG_BUF_SHIFT=20
CONFIG_DEBUG_KMEMLEAK_MEM_POOL_SIZE=16000
CONFIG_FRAME_WARN=0
CONFIG_NR_CPUS=8
CONFIG_LOCKDEP_BITS=16
CONFIG_LOCKDEP_CHAINS_BITS=17
"""
# The driver unlocks a mutex by way of memory that it may just have freed, when a mapping ends after its window. KASAN
# would report it each time, and hide everything else.
MENDED = "drivers/rapidio/devices/rio_mport_cdev.c"
BEFORE = """\
\tmutex_lock(&map->md->buf_mutex);
\tkref_put(&map->ref, mport_release_mapping);
\tmutex_unlock(&map->md->buf_mutex);
}

static const struct vm_operations_struct"""
AFTER = BEFORE.replace("&map->md->", "&md->").replace(
    "\tmutex_lock", "\tstruct mport_dev *md = map->md;\n\n\tmutex_lock", 1
)
# What a kernel without them would be no use for.
MUST = ("KASAN", "PROVE_LOCKING", "DEBUG_KMEMLEAK", "MODULES", "NET_9P_VIRTIO", "OVERLAY_FS", "X86_MPPARSE", "DMA_OPS")


def config() -> str:
    lines = [f"CONFIG_{name}=y" for name in CONFIG.split()] + [f"CONFIG_{name}=m" for name in PORTS.split()]
    return "\n".join(lines) + VALUES


def run(words: list[str | Path], log: Path, environment: dict[str, str], folder: Path) -> None:
    """What it says goes to the log; the last lines of it are the reason if it fails."""
    with log.open("ab") as file:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            check=False,
        )
    if done.returncode != 0:
        last = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
        raise image.UnavailableError(f"building a kernel failed: {last}")


def environment_of(tools: Path) -> dict[str, str]:
    """With the unpacked programs in front."""
    libraries = tools / "usr" / "lib" / "x86_64-linux-gnu"
    return {
        **os.environ,
        "PATH": f"{tools / 'usr' / 'bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(libraries),
        "BISON_PKGDATADIR": str(tools / "usr" / "share" / "bison"),
        "m4".upper(): str(tools / "usr" / "bin" / "m4"),
        "CPATH": str(tools / "usr" / "include"),
        "LIBRARY_PATH": str(libraries),
    }


def mend(file: Path) -> None:
    """One bug of the kernel, or nothing where a later version has mended it."""
    file.write_text(file.read_text().replace(BEFORE, AFTER))


def build(place: Path, version: str) -> None:
    """In `place` for good."""
    apt = image.Apt(place)
    files = apt.fetch_alone("packages", [f"linux-source-{'.'.join(version.split('.')[:2])}", *TOOLS, *HEADERS])
    archive = next(file for file in files if file.name.startswith("linux-source"))
    tools = place / "tools"
    image.unpack([file for file in files if file != archive], tools)
    source = place / "source"
    source.mkdir()
    kernel_tree.Tree(source, tools / "usr" / "bin", archive).unpack(["*"], source)
    shutil.rmtree(place / "packages")
    mend(source / MENDED)
    (place / "config").write_text(config())
    environment = {**environment_of(tools), "KCONFIG_ALLCONFIG": str(place / "config")}
    log = place / "log"
    make: list[str | Path] = ["make", "CC=gcc-12", "HOSTCC=gcc-12", "LIBELF_CFLAGS=", "LIBELF_LIBS=-lelf"]
    run([*make, "allnoconfig"], log, environment, source)
    chosen = (source / ".config").read_text().splitlines()
    missing = [name for name in MUST if f"CONFIG_{name}=y" not in chosen]
    missing += [name for name in PORTS.split() if f"CONFIG_{name}=m" not in chosen]
    if missing:
        raise image.UnavailableError(f"this kernel source does not let itself have {', '.join(missing)}")
    run([*make, "-s", f"-j{os.cpu_count() or 1}", "bzImage", "modules"], log, environment, source)
    (place / "modules").mkdir()
    for name in DRIVERS:
        shutil.copy(source / name, place / "modules")
    shutil.copy(source / "arch" / "x86" / "boot" / "bzImage", place)
    image.write_initrd(place, image.ensure() / "layer", [])


def place_of() -> tuple[Path, str]:
    """Where it lies once it is built, and of which version of the kernel it is."""
    version = next((image.ensure() / "layer" / "usr" / "lib" / "modules").iterdir()).name
    parts = [config().encode(), (image.HERE / "inside" / "init.sh").read_bytes()]
    return image.cache_folder() / f"debug-{version}-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}", version


def ensure() -> Path:
    """Its folder, built now if it is not there. Raises image.UnavailableError."""
    place, version = place_of()
    if (place / "done").is_file():
        return place
    with (image.cache_folder() / "debug.lock").open("w") as lock:  # not the cache's own: others would wait for an hour
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "done").is_file():
            print(
                f"guest: building a kernel, some ten minutes of two processors; {place}/log",
                file=sys.stderr,
                flush=True,
            )
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            try:
                build(place, version)
            except (OSError, subprocess.SubprocessError, StopIteration) as error:
                raise image.UnavailableError(f"building a kernel failed: {error}") from error
            (place / "done").touch()
    return place


def wanted() -> bool:
    """INCAST_GUEST_KERNEL=debug: guests boot this one. Raises image.UnavailableError for another word."""
    word = os.environ.get("INCAST_GUEST_KERNEL", "")
    if word not in ("", "debug"):
        raise image.UnavailableError(f"INCAST_GUEST_KERNEL={word}: there is 'debug', or nothing for Debian's kernel")
    return word == "debug"
