"""Fixtures of the tests in a guest (docs/testing.md)."""

import dataclasses
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from guest import debug_kernel, image, machine, rapidio, siw, steps
from guest.steps import Step
from in_guest import ROOT, GuestRun

# Of a debug kernel: what it reported, and memory that nothing points to any more. It says so of what is older than five
# seconds, and only if a second look agrees.
REPORTS = """
if dmesg | grep -A 40 -E 'BUG:|WARNING:|Oops|general protection'; then exit 1; fi
mount -t debugfs none /sys/kernel/debug
for look in 1 2; do
    sleep 6
    echo scan >/sys/kernel/debug/kmemleak
done
cat /sys/kernel/debug/kmemleak
"""
# What the kernel's own drivers forget in 6.1: the range of a doorbell that is released (rio_release_inb_dbell), and a
# second reference to each device that goes (rio_setup_device, RIO_DEV_ADD).
FORGETFUL = re.compile(r"\[(rapidio|rio_scan|rio_mport_cdev)\]")
SLOWER = 5  # than Debian's kernel, where each access to memory is checked


# A line of /proc/modules, which a step shows before it unloads them: the kernel names them no more after that.
MODULE = re.compile(r"^(\w+) (\d+) .* (0x[0-9a-f]{16})", re.M)


def leaks_of(results: dict[str, steps.Result]) -> list[str]:
    """Each with its backtrace, in which the modules are named."""
    said = "".join(result.output for result in results.values())
    places = [(int(begin, 16), int(size), name) for name, size, begin in MODULE.findall(said)]

    def named(address: re.Match[str]) -> str:
        at = int(address[0], 16)
        return next((f"[{name}]" for begin, size, name in places if begin <= at < begin + size), address[0])

    parts = results["reports"].output.split("unreferenced object ")
    return [re.sub(r"0x[0-9a-f]{16}", named, part) for part in parts if "backtrace" in part]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder have the mark `guest`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("guest")


@pytest.fixture(scope="session")
def made() -> Path:
    """The image; skips where this host cannot have it."""
    try:
        return image.ensure()
    except image.UnavailableError as error:
        pytest.skip(f"no guest: {error}")


@pytest.fixture(scope="session")
def with_siw(made: Path) -> None:
    """The image has soft-iWARP."""
    try:
        siw.ensure()
    except image.UnavailableError as error:
        pytest.skip(f"no soft-iWARP: {error}")


@pytest.fixture(scope="session")
def modules(made: Path) -> Path:
    """The drivers and the port, built; skips where this host cannot have them."""
    try:
        return rapidio.ensure()
    except image.UnavailableError as error:
        pytest.skip(f"no RapidIO in the guest: {error}")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs in C that lie here."""
    folder = tmp_path_factory.mktemp("rio")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{ROOT}/kernel"]
    for source in sorted(Path(__file__).parent.glob("rio_*.c")):
        subprocess.run(["cc", *flags, "-o", str(folder / source.stem), str(source)], check=True, timeout=120)
    return folder


@pytest.fixture
def guest(made: Path, tmp_path: Path) -> GuestRun:
    """Boots one guest, runs steps in it and says what became of each."""

    def run(wanted: Sequence[Step], **options: object) -> dict[str, steps.Result]:
        debug = debug_kernel.wanted()
        if debug:
            wanted = [dataclasses.replace(step, timeout_s=SLOWER * step.timeout_s) for step in wanted]
            wanted.append(Step("reports", REPORTS, 900))
        limit = 120 + sum(step.timeout_s for step in wanted)
        chosen = dataclasses.replace(machine.Options(timeout_s=limit), **options)
        # Two guests of one test begin at the same time.
        results = steps.run(wanted, Path(tempfile.mkdtemp(prefix="out-", dir=tmp_path)), chosen)
        if debug and results["reports"].status is not None:
            assert results["reports"].status == 0, results["reports"]
            leaks = leaks_of(results)
            print(f"{len(leaks)} leaks of the kernel's drivers")
            assert [each for each in leaks if "[rio_soft]" in each or not FORGETFUL.search(each)] == []
        return results

    return run


@pytest.fixture(scope="session")
def everything() -> None:
    """Skips what only `.ci/run --all` runs."""
    if not os.environ.get("INCAST_GUEST_ALL"):
        pytest.skip("a longer one, with INCAST_GUEST_ALL=1 and in .ci/run --all")
