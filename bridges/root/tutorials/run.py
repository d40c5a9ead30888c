"""Runs ROOT's own tutorials of its network classes, unchanged, over channels, and compares with what sockets gave.

    python3 bridges/root/tutorials/run.py OUT [--only hserv|merge] [--over shm rio-shm rio-udp]

OUT is what `build.sh OUT` made. `hserv`: hserv.C and two of hclient.C, which send histograms. `merge`:
parallelMergeServer.C and two of parallelMergeClient.C, each of which fills a histogram and a tree 25 million times,
through TParallelMergingFile; minutes. Exit status 1 if anything differs. The tutorials have a fixed port, so all of it
runs in a network of its own.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
INSIDE = "INCAST_ROOT_INSIDE"
OVER = {
    "shm": {"INCAST_ROOT": "shm"},
    "rio-shm": {"INCAST_ROOT": "rio", "RIO_FABRIC": f"shm:root-{os.getpid()}"},
    "rio-udp": {"INCAST_ROOT": "rio", "RIO_FABRIC": "udp:127.0.1.0/24:7500"},
}


class Programs:
    """Processes of ROOT that work in one folder."""

    def __init__(self, out: Path, folder: Path, environment: dict[str, str], timeout: float) -> None:
        self._out = out
        self._folder = folder
        self._environment = {**environment, "TMPDIR": str(folder)}
        self._timeout = timeout
        folder.mkdir()

    def start(self, name: str, *macros: str) -> subprocess.Popen[bytes]:
        with (self._folder / name).open("wb") as log:
            words = [str(self._out / "bin" / "root.exe"), "-b", "-l", "-q", *macros, str(HERE / "count.C")]
            return subprocess.Popen(
                words, cwd=self._folder, env=self._environment, stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    def wait_for_path(self) -> str:
        """The path of the server's socket, as soon as it listens there, and for channels, too, if they are wanted."""
        end = time.monotonic() + self._timeout
        while time.monotonic() < end:
            for path in self._folder.glob("rootserv.*"):
                if (
                    path.suffix != ".incast"
                    and path.is_socket()
                    and ("INCAST_ROOT" not in self._environment or Path(f"{path}.incast").is_symlink())
                ):
                    return str(path)
            time.sleep(0.02)
        raise SystemExit("nobody listens at a path")

    def wait_for_port(self, port: int) -> None:
        """Until somebody listens there, and for channels, too, if they are wanted."""
        card = Path("/", "tmp", f"incast-root-{os.geteuid()}", f"{Path('/proc/self/ns/net').stat().st_ino}-{port}")
        end = time.monotonic() + self._timeout
        while time.monotonic() < end:
            if "INCAST_ROOT" in self._environment:
                is_there = card.is_symlink()
            else:
                is_there = f":{port:04X} 00000000:0000 0A" in Path("/proc/self/net/tcp").read_text()
            if is_there:
                return
            time.sleep(0.02)
        raise SystemExit(f"nobody listens at port {port}")

    def finish(self, processes: list[subprocess.Popen[bytes]]) -> None:
        with ExitStack() as stack:
            for process in processes:
                stack.callback(process.kill)
            for process in processes:
                process.wait(self._timeout)
        for process in processes:
            if process.returncode != 0:
                raise SystemExit(f"{self._folder}: a program ended with {process.returncode}")

    def said(self, word: str) -> list[str]:
        """The lines of all logs that have the word."""
        lines = [line for log in self._folder.glob("*.txt") for line in log.read_text(errors="replace").splitlines()]
        return [line for line in lines if word in line]


def run_hserv(programs: Programs, tutorials: Path) -> None:
    server = programs.start("server.txt", str(tutorials / "hserv.C"), str(HERE / "keep.C"))
    programs.wait_for_port(9090)
    macros = (str(HERE / "fixed.C"), str(tutorials / "hclient.C"))
    programs.finish([server, *(programs.start(f"client{n}.txt", *macros) for n in range(2))])


def run_merge(programs: Programs, tutorials: Path) -> None:
    server = programs.start("server.txt", str(tutorials / "parallelMergeServer.C"))
    macros = (str(HERE / "fixed.C"), f'{tutorials / "parallelMergeClient.C"}("{programs.wait_for_path()}")')
    programs.finish([server, *(programs.start(f"client{n}.txt", *macros) for n in range(2))])


RUNS = {"hserv": (run_hserv, "kept.root"), "merge": (run_merge, "mergedClient.root")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=sorted(RUNS))
    parser.add_argument("--over", nargs="+", choices=sorted(OVER), default=sorted(OVER))
    parser.add_argument("--timeout", type=float, default=600)
    arguments = parser.parse_args()
    if INSIDE not in os.environ:
        inside = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        os.execvpe(inside[0], [*inside, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
    out = arguments.out.resolve()
    tutorials = (out / "bin" / "root.exe").resolve().parent.parent / "tutorials" / "legacy" / "net"
    preload = str(out / "lib" / "libIncastRootPreload.so")
    differing = 0
    for name, (run, result) in RUNS.items():
        if arguments.only not in {None, name}:
            continue
        with tempfile.TemporaryDirectory(prefix="root") as top:
            for over in ["tcp", *arguments.over]:
                turned = {**os.environ, **OVER.get(over, {})}
                if over in OVER:
                    turned["LD_PRELOAD"] = preload
                programs = Programs(out, Path(top, over), turned, arguments.timeout)
                run(programs, tutorials)
                if over == "tcp":
                    continue
                words = [str(out / "bin" / "root.exe"), "-b", "-l", "-q"]
                macro = f'{HERE / "equal.C"}("{top}/tcp/{result}", "{top}/{over}/{result}")'
                compared = subprocess.run([*words, macro], check=False, capture_output=True, text=True)
                said = [line for line in compared.stdout.splitlines() if "Processing" not in line and line.strip()]
                counts = sorted(programs.said("channels: "))
                said += [*programs.said("TRioSystem"), f"channels of each process: {counts}"]
                is_equal = compared.returncode == 0 and counts == [f"channels: {n}" for n in (1, 1, 2)]
                differing += not is_equal
                print(f"{name} over {over}: {'equal' if is_equal else 'DIFFERENT'}", flush=True)
                print("\n".join(f"    {line}" for line in said), flush=True)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
