"""Runs Hadoop over network devices of RapidIO, and over veth beside it (docs/hadoop.md): what run.sh does.

This process gets the jars, starts each run in namespaces of its own (inside.py), and writes result.json and page.html.
When it ends, however it ends, the kernel ends all processes of the run, and its networks and folders are gone.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from network import NETWORKS
from page import page
from workloads import SCALES

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
_NEEDED = {"java": "a Java runtime, 11 or 17", "ip": "iproute2", "tc": "iproute2", "ping": "iputils-ping",
           "unshare": "util-linux", "setpriv": "util-linux"}  # fmt: skip
_EXIT_BAD = 2


def fail(line: str) -> NoReturn:
    """One line, and the status for what was asked wrongly or is not there."""
    print(f"run.sh: {line}", file=sys.stderr)
    sys.exit(_EXIT_BAD)


def main() -> int:
    """0: everything ran and was right. 1: something was not, or failed. 2: it cannot run here, or not so."""
    wanted = _arguments()
    _check(wanted)
    out: Path = wanted.out.resolve()
    jars = _jars(out)
    if wanted.get:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    begin = datetime.now(UTC)
    runs = []
    for network in wanted.network:
        print(f"Hadoop over {network}:", file=sys.stderr, flush=True)
        found = _run(wanted, network, out, jars)
        if found is None:
            return 1
        runs.append(found)
    result = {
        "schema": 1,
        "kind": "hadoop",
        "time_domain": "real",
        "started_utc": begin.isoformat(timespec="seconds"),
        "hadoop": _hadoop_version(),
        "java": _java_version(),
        "machine": _machine(),
        "runs": runs,
        "valid": all(run["valid"] for run in runs),
    }
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    (out / "page.html").write_text(page(result))
    for run in runs:
        _print(run)
    print(f"{out / 'page.html'}")
    return 0 if result["valid"] else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh", description="Runs Hadoop over network devices (docs/hadoop.md).")
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder for the jars, the result and the logs")
    parser.add_argument("--network", action="append", choices=NETWORKS, help="may be repeated (default: both)")
    parser.add_argument("--yarn", action="store_true", help="jobs run by YARN, else in the client's process")
    parser.add_argument("--scale", choices=list(SCALES), default="trial", help="how much data (default: trial)")
    parser.add_argument("--faults", action="store_true", help="two more jobs: a link goes down, a data node is killed")
    parser.add_argument("--rates", type=_rates, default=[], metavar="MBIT,...",
                        help="all jobs again with so many Mbit/s for each host")  # fmt: skip
    parser.add_argument("--engine", type=Path, default=CHECKOUT / "build" / "release" / "bin" / "incast-netdev",
                        metavar="PROGRAM", help="incast-netdev (default: of build/release)")  # fmt: skip
    parser.add_argument("--get", action="store_true", help="only get the jars")
    parser.add_argument("--force", action="store_true", help="replace a result that OUT holds")
    wanted = parser.parse_args()
    wanted.network = list(dict.fromkeys(wanted.network or NETWORKS))
    return wanted


def _rates(text: str) -> list[float]:
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: allowed: Mbit/s, with commas between") from error
    if not all(1 <= rate <= 100_000 for rate in found):
        raise argparse.ArgumentTypeError(f"{text}: allowed: 1 to 100000 Mbit/s")
    return found


def _check(wanted: argparse.Namespace) -> None:
    """Before anything is made."""
    if (wanted.out / "result.json").exists() and not wanted.force:
        fail(f"{wanted.out} holds result.json of an earlier run; allowed: another folder, or --force")
    if wanted.out.resolve().is_relative_to("/run"):
        fail(f"{wanted.out}: a run has a /run of its own; allowed: a folder elsewhere")
    for tool, package in _NEEDED.items():
        if shutil.which(tool) is None:
            fail(f"there is no {tool}; it comes with {package}")
    if wanted.get:
        return
    if os.geteuid() != 0:
        fail("hosts of their own are network namespaces, which need root")
    if "rio" in wanted.network and not wanted.engine.is_file():
        fail(f"there is no {wanted.engine}: cmake --build build/release --target incast-netdev")


def _jars(out: Path) -> Path:
    """Hadoop's, from where Maven is set up to get packages. They are kept."""
    jars = out / "jars"
    if jars.is_dir():
        return jars
    if shutil.which("mvn") is None:
        fail("there is no mvn, which gets Hadoop; it comes with maven")
    out.mkdir(parents=True, exist_ok=True)
    print("getting Hadoop, 95 MB", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=out, prefix="jars-") as folder:
        words = ["mvn", "-q", "-B", "-ntp", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        log = out / "maven.log"
        with log.open("wb") as said:
            status = subprocess.run(
                [*words, "-DincludeScope=runtime", f"-DoutputDirectory={folder}/jars"],
                stdout=said,
                stderr=said,
                check=False,
            ).returncode
        if status != 0:
            fail(f"Maven could not get Hadoop: {log}")
        Path(folder, "jars").rename(jars)
    return jars


def _run(wanted: argparse.Namespace, network: str, out: Path, jars: Path) -> dict[str, Any] | None:
    """In namespaces of its own; None if it failed, which it has said."""
    logs = out / "logs" / network
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    java = shutil.which("java")
    assert java is not None
    settings = {
        "network": network,
        "yarn": wanted.yarn,
        "scale": wanted.scale,
        "faults": wanted.faults,
        "rates": wanted.rates,
        "netdev": str(wanted.engine.resolve()),
        "java": str(Path(java).resolve()),
        "jars": str(jars),
        "logs": str(logs),
    }
    (logs / "settings.json").write_text(json.dumps(settings))
    # If this process dies, the kernel ends `unshare`, and with it the first process of the namespaces, and so all.
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--ipc", "--pid", "--mount-proc"]
    command += ["--fork", "--kill-child=KILL", sys.executable, str(HERE / "inside.py"), str(logs / "settings.json")]
    # What `unshare` says, also when it is told to end, is not for the terminal; what the run says is.
    errors = logs / "unshare.log"
    terminal = os.dup(sys.stderr.fileno())
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            [*command, str(terminal)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=[terminal],
            start_new_session=True,
        ) as process,
    ):
        os.close(terminal)
        try:
            said, _ = process.communicate()
        finally:
            _end(process)
    if process.returncode == 0:
        return dict(json.loads(said))
    if words := errors.read_text(errors="replace").strip():
        print(f"run.sh: {words.splitlines()[-1]}", file=sys.stderr)
    return None


def _end(process: "subprocess.Popen[bytes]") -> None:
    """`unshare` ends once all processes of the namespaces have ended: so the first of them is what is killed."""
    if process.poll() is not None:
        return
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    if not children:
        process.kill()
    process.wait()


def _hadoop_version() -> str:
    found = re.search(r"<hadoop>(.*?)</hadoop>", (HERE / "pom.xml").read_text())
    return found[1] if found else ""


def _java_version() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return said.splitlines()[0] if said else ""


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
    return {"cpu_model": model, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}


def _print(run: dict[str, Any]) -> None:
    print(f"over {run['network']}, {'YARN' if run['framework'] == 'yarn' else 'LocalJobRunner'}: {run['seconds']:g} s")
    for job in run["jobs"] + run["faults"]:
        limit = job.get("limit_mbit_per_s")
        what = job.get("fault") or (f"{limit:g} Mbit/s" if limit else "")
        right = "right" if job["valid"] else "WRONG: " + ", ".join(k for k, v in job["checks"].items() if not v)
        sent = f"{job['fabric_sent_bytes'] / 1e6:.1f} MB"
        print(f"  {job['job']:16} {job['seconds']:7.1f} s {sent:>12}  {right}  {what}".rstrip())
    print(f"  management interfaces: {sum(run['management_bytes'].values())} B")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
