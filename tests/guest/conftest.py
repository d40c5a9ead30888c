"""Fixtures of the tests in a guest (docs/testing.md)."""

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from guest import image, machine, siw, steps
from guest.steps import Step
from in_guest import GuestRun


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


@pytest.fixture
def guest(made: Path, tmp_path: Path) -> GuestRun:
    """Boots one guest, runs steps in it and says what became of each."""

    def run(wanted: Sequence[Step], **options: object) -> dict[str, steps.Result]:
        limit = 120 + sum(step.timeout_s for step in wanted)
        chosen = dataclasses.replace(machine.Options(timeout_s=limit), **options)
        # Two guests of one test begin at the same time.
        return steps.run(wanted, Path(tempfile.mkdtemp(prefix="out-", dir=tmp_path)), chosen)

    return run


@pytest.fixture(scope="session")
def everything() -> None:
    """Skips what only `.ci/run --all` runs."""
    if not os.environ.get("INCAST_GUEST_ALL"):
        pytest.skip("a longer one, with INCAST_GUEST_ALL=1 and in .ci/run --all")
