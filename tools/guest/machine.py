"""A guest: Debian's kernel under QEMU, with the root of this host below a memory of its own, so that it can read all
and change nothing but /out. It runs one command and is gone.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import secrets
import selectors
import shlex
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from guest import debug_kernel, image

INSIDE = Path(__file__).resolve().parent / "inside"
Sink = Callable[[bytes], object]


@dataclass(frozen=True)
class Options:
    """What a guest has and how long it may take."""

    cpus: int = 2
    memory: str = "2G"
    timeout_s: float = 300.0
    out: Path | None = None
    peer: str = ""
    udp: tuple[int, ...] = ()


class GuestError(Exception):
    """Why the command was not run, or not to its end."""


class TimedOutError(GuestError):
    """The command took too long."""


def tsc_khz() -> int:
    """How fast this processor's time-stamp counter counts, which is the guest's clock as well. The kernel would measure
    it against an emulated timer, which goes wrong on a busy host. 0 if it cannot be read.
    """
    code = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return 0
    page.write(code)
    buffer = ctypes.c_char.from_buffer(page)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(buffer))

    def rate() -> float:
        begin, first = time.monotonic_ns(), read()
        while time.monotonic_ns() < begin + 5_000_000:
            pass
        last, end = read(), time.monotonic_ns()
        return float(last - first) * 1e6 / (end - begin)

    khz = statistics.median(rate() for _ in range(9))
    del buffer
    page.close()
    return round(khz)


def take_seat(folder: Path, number: int) -> int | None:
    """A lock that is held until it is closed; None if another process has it."""
    path = folder / f"{number}.lock"
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise GuestError(f"{folder} belongs to somebody else: name another peer")
        with contextlib.suppress(FileNotFoundError):  # whoever had it removed it just now
            lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
            except BlockingIOError:
                os.close(lock)
                return None
            os.close(lock)


@contextlib.contextmanager
def seat(peer: str) -> Iterator[tuple[int, Path]]:
    """Of two guests that name the same peer, which this one is, 1 or 2, and the folder of the sockets between them."""
    folder = Path(tempfile.gettempdir()) / f"incast-guest-{os.getuid()}-{peer}"
    for number in (1, 2):
        lock = take_seat(folder, number)
        if lock is None:
            continue
        try:
            yield number, folder
        finally:
            (folder / f"{number}.socket").unlink(missing_ok=True)
            (folder / f"{number}.lock").unlink(missing_ok=True)
            os.close(lock)
            with contextlib.suppress(OSError):  # the other is still there
                folder.rmdir()
        return
    raise GuestError(f"two guests of the peer '{peer}' run already: name another")


class Stream:
    """One stream of the guest, up to the line by which process 1 ends it."""

    def __init__(self, end: str, sink: Sink) -> None:
        self.reader, self.writer = os.pipe()
        self._end = b"\0" + end.encode() + b" "
        self._sink = sink
        self._held = b""
        self.status: int | None = None

    def read(self) -> bool:
        """Passes on what is there; False at the end."""
        chunk = os.read(self.reader, 1 << 16)
        if not chunk:
            self._pass_on(len(self._held))
            return False
        self._held += chunk
        at = self._held.find(self._end)
        if at >= 0:
            line = self._held[at + len(self._end) :]
            if b"\n" not in line:
                return True
            self.status = int(line.split(b"\n")[0])
            self._pass_on(at)
            return False
        # A zero byte may be where the end begins.
        zero = self._held.rfind(b"\0", max(0, len(self._held) - len(self._end)))
        self._pass_on(zero if zero >= 0 else len(self._held))
        return True

    def _pass_on(self, length: int) -> None:
        if length:
            self._sink(self._held[:length])
        self._held = self._held[length:]

    def close_writer(self) -> None:
        """Once QEMU has it: then its end is the end of the stream. A number closed twice would be another's."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        self.close_writer()
        os.close(self.reader)


def last_lines(file: Path, count: int) -> str:
    try:
        return "\n".join(file.read_text(errors="replace").splitlines()[-count:])
    except OSError:
        return ""


def kernel_words(cpus: int) -> str:
    words = ["console=ttyS0", "quiet", "panic=-1", "mitigations=off", "nokaslr", "random.trust_cpu=on", "tsc=reliable"]
    words.append("no_timer_check")  # where the host is busy no tick comes within the moment that it waits for one
    khz = tsc_khz()
    if khz:
        words.append(f"tsc_early_khz={khz}")
    if cpus == 1:
        words.append("acpi=off")  # half a second less
    return " ".join(words)


def share(tag: str, path: Path, *, writable: bool = False) -> list[str]:
    said = str(path).replace(",", ",,")
    mode = "" if writable else ",readonly=on"
    return ["-virtfs", f"local,path={said},mount_tag={tag},security_model=none,multidevs=remap{mode}"]


def network(number: int, folder: Path) -> list[str]:
    """A cable to the other guest: datagrams, so that either may begin, and neither sees the other end."""
    local, remote = ((folder / f"{each}.socket") for each in (number, 3 - number))
    paths = f"local.type=unix,local.path={local},remote.type=unix,remote.path={remote}"
    card = f"virtio-net-pci,netdev=cable,mac=52:54:00:00:00:0{number},romfile=,host_mtu=4200"
    return ["-netdev", f"dgram,id=cable,{paths}", "-device", card]


def ports(numbers: Sequence[int]) -> list[str]:
    """A network with this host alone, which is 10.0.2.2 there, and whose loopback address is all that it reaches. What
    comes to these UDP ports of the loopback address goes to the same ports of the guest, 10.0.2.15, and what the guest
    sends from them comes from there.
    """
    forwards = "".join(f",hostfwd=udp:127.0.0.1:{number}-10.0.2.15:{number}" for number in numbers)
    return [
        "-netdev",
        f"user,id=host{forwards}",
        "-device",
        "virtio-net-pci,netdev=host,mac=52:54:00:00:01:00,romfile=",
    ]


def qemu_command(made: Path, folder: Path, out: Path, options: Options, streams: Sequence[Stream]) -> list[str]:
    data = made / "qemu" / "usr" / "share"
    words = ["setpriv", "--pdeathsig", "KILL", "--", str(made / "qemu/usr/bin/qemu-system-x86_64")]
    words += ["-L", str(data / "qemu"), "-L", str(data / "seabios")]
    words += ["-accel", "tcg,thread=multi", "-cpu", "max", "-m", options.memory]
    words += ["-smp", f"{options.cpus},sockets={options.cpus}"]  # or a kernel without ACPI would see one of them
    words += ["-M", "pc", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    if debug_kernel.wanted():
        kernel = debug_kernel.ensure()
        words += ["-kernel", str(kernel / "bzImage"), "-initrd", str(kernel / "initrd")]
    else:
        words += ["-kernel", str(made / "vmlinux"), "-initrd", str(made / "initrd")]
    words += ["-append", kernel_words(options.cpus), "-serial", f"file:{folder / 'console'}"]
    words += share("host", Path("/")) + share("layer", made / "layer") + share("guest", folder / "given")
    words += share("out", out, writable=True)
    words += ["-device", "virtio-serial-pci"]
    for number, stream in enumerate(streams, start=1):
        words += ["-chardev", f"file,id=stream{number},path=/dev/fd/{stream.writer}"]
        words += ["-device", f"virtserialport,chardev=stream{number},nr={number}"]
    return words


def carry(streams: Sequence[Stream], deadline: float) -> bool:
    """Passes on the output until both streams have ended, or QEMU has; False at the deadline."""
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.reader, selectors.EVENT_READ, stream)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            ready = selector.select(left)
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fd)
    return True


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Those that end a program come behind it. A program that is started meanwhile never gets them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()


def run(command: Sequence[str], options: Options, stdout: Sink, stderr: Sink) -> int:
    """Exit status of the command. Raises GuestError, and image.UnavailableError."""
    made = image.ensure()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="incast-guest-")))
        out = options.out or folder / "out"
        out.mkdir(parents=True, exist_ok=True)
        mark = secrets.token_hex(16)
        streams = [Stream(mark, sink) for sink in (stdout, stderr)]
        for stream in streams:
            stack.callback(stream.close)
        words = qemu_command(made, folder, out.resolve(), options, streams)
        side = 0
        if options.peer:
            side, between = stack.enter_context(seat(options.peer))
            words += network(side, between)
        if options.udp:
            words += ports(options.udp)
        give(folder / "given", command, mark, side)
        libraries = made / "qemu" / "usr" / "lib" / "x86_64-linux-gnu"
        log = stack.enter_context((folder / "qemu").open("wb"))
        with deferred_signals():  # one in between would leave a machine that nobody ends
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[stream.writer for stream in streams],
                env={**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{libraries / 'pulseaudio'}"},
                process_group=0,  # an interrupt of the terminal is ours to handle
            )
            stack.callback(end, process)
        for stream in streams:
            stream.close_writer()
        if not carry(streams, time.monotonic() + options.timeout_s):
            raise TimedOutError(f"no end within {options.timeout_s:g} s: ended by force")
        status = streams[0].status
        if status is None:
            end(process)
            said = last_lines(folder / "qemu", 5) or last_lines(folder / "console", 20) or "no word"
            raise GuestError(f"it ended before the command did, and said: {said}")
        return status


def give(folder: Path, command: Sequence[str], mark: str, side: int) -> None:
    """What process 1 reads."""
    folder.mkdir()
    shutil.copy(INSIDE / "begin.sh", folder)
    (folder / "command").write_text(f"exec {shlex.join(command)}\n")
    settings = {"END": mark, "FOLDER": str(Path.cwd()), "SCRIPTS": str(INSIDE), "SIDE": str(side)}
    lines = (f"INCAST_GUEST_{key}={shlex.quote(value)}\n" for key, value in settings.items())
    (folder / "settings").write_text("".join(lines))
