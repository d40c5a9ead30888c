"""One small program for each thing that SoftRIO once did otherwise than the original library, on all its fabrics: shm,
udp and, in a guest, master ports of the kernel. INCAST_CASES names the folder above theirs.
"""

import os
import shlex
import socket
import subprocess
from pathlib import Path

import pytest
from guest.steps import Step
from in_guest import BIN, ROOT, TROUBLE, GuestRun, free_ports

CASES = Path(os.environ.get("INCAST_CASES", ROOT.parent / "shared" / "cases")) / "softrio"
SOFTRIO = BIN.parent / "softrio"
LIMIT_S = 60.0  # a guest of a busy host takes its time
TOO_LONG = 124
CANNOT_BEGIN = 2
# Programs that end with 0 say that all was as the original; these need not.
OTHERWISE = {
    "display_info": (1,),  # it prints what a reader is to compare
    # Its accepting thread looks at a flag between two calls of accept with no stop_req, and such a call never ends,
    # as in the original: the program waits for that thread for ever, or does not if the flag came first.
    "fmd_slave_loop": (0, TOO_LONG),
}
# What ends otherwise on one fabric: the status, something it says, and the reason.
DIFFERENT: dict[tuple[str, str], tuple[int, str, str]] = {
    ("udp", "obwin_before_ibwin"): (1, "there -95", "memory of another host is not mapped"),
    ("linux", "obwin_before_ibwin"): (
        1,
        "there -19, of a window not yet there -5",
        "rio_soft wants it to be there",
    ),
    ("linux", "fixed_physical"): (1, "-95", "the driver opens windows over memory of its own alone"),
    ("linux", "two_processes_one_port"): (1, "has destination id 1, and not 5", "the kernel's enumeration gives ids"),
    ("linux", "wait_async_zero"): (CANNOT_BEGIN, "", "its window has 16 MiB; the kernel has 4 MiB in a row"),
}
DISPLAYED = ("+++ SRIO mport configuration +++", "link: speed=5.0Gb width=4x", "DMA: max_sge=0 max_size=")


def limit_of(case: str) -> float:
    """The one that never ends needs no longer than it takes to see that."""
    return 20.0 if case == "fmd_slave_loop" else LIMIT_S


def options_of(system: str, case: str) -> str:
    """The case of a wait wants a transfer that takes a while."""
    return "mports=2&link=tsi721" if (system, case) == ("shm", "wait_async_zero") else "mports=2"


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The programs, built as a user builds them."""
    sources = sorted(CASES.glob("*.c"))
    if not sources:
        pytest.skip(f"{CASES} has no cases")
    folder = tmp_path_factory.mktemp("cases")
    flags = ["-w", "-Werror=implicit-function-declaration", "-O1", f"-I{SOFTRIO}/include", f"-L{SOFTRIO}/lib"]
    flags += [f"-Wl,-rpath,{SOFTRIO}/lib", "-lmport", "-lrsvdmem", "-lpthread"]
    programs = {source.stem: folder / source.stem for source in sources}
    for source in sources:
        subprocess.run(["cc", str(source), "-o", str(folder / source.stem), *flags], check=True, timeout=120)
    return programs


def check(system: str, case: str, status: int | None, said: str) -> None:
    wanted, words, reason = DIFFERENT.get((system, case), (0, "", "as the original"))
    allowed = OTHERWISE.get(case, (wanted,))
    assert status in allowed, f"{case} on {system} ended with {status}, not {allowed} ({reason}), and said:\n{said}"
    assert words in said, (case, system, said)
    if case == "display_info":
        assert all(each in said for each in DISPLAYED), said


def run_here(case: str, program: Path, fabric: str) -> tuple[int, str]:
    command = ["timeout", f"{limit_of(case):g}", str(program)]
    done = subprocess.run(
        command,
        env={**os.environ, "RIO_FABRIC": fabric},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("fabric", ["shm:cases-{process}", "udp:loopback:{port}"])
def test_processes_do_as_the_original(fabric: str, cases: dict[str, Path]) -> None:
    system = fabric.partition(":")[0]
    place = fabric.format(process=os.getpid(), port=free_ports(socket.SOCK_DGRAM, 1)[0])
    for case, program in cases.items():
        check(system, case, *run_here(case, program, f"{place}?{options_of(system, case)}"))


@pytest.mark.usefixtures("everything")
def test_ports_of_the_kernel_do_as_the_original(guest: GuestRun, cases: dict[str, Path], modules: Path) -> None:
    """In one guest, with two ports back to back. What differs there is in docs/rapidio.md, too."""
    steps = [Step("ports", f"rio-ports.sh '{modules}' 2")]
    for case, program in cases.items():
        fabric = shlex.quote(f"linux:0?{options_of('linux', case)}")
        steps.append(Step(case, f"exec env RIO_FABRIC={fabric} '{program}'", limit_of(case)))
    results = guest([*steps, Step("log", "dmesg")])
    assert results["ports"].status == 0, results["ports"]
    for case in cases:
        check("linux", case, results[case].status, results[case].output)
    assert not TROUBLE.search(results["log"].output), results["log"]


def test_the_document_lists_what_differs() -> None:
    text = (ROOT / "docs" / "rapidio.md").read_text()
    for (system, case), (_, _, reason) in DIFFERENT.items():
        assert f"| `{case}` | {system} | {reason} |" in text, (system, case, reason)
