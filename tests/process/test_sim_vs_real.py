"""One quick case of bench/sim_vs_real.py: tcp over shaped cables between namespaces, against the packet model."""

import os
import subprocess
from pathlib import Path

import pytest
from sim_vs_real import Case, Link, NoNetworkError, compare


def test_a_simulated_network_is_like_the_real_one(engine: Path, tmp_path: Path) -> None:
    case = Case(nodes=4, link=Link(30), schedule="linear-shift", mfp="16KiB", warm_up=1, seconds=2)
    # What runs beside it can only make the real one slower: the first try that is near counts.
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        try:
            compared = compare(engine, case, folder)
        except NoNetworkError as error:
            pytest.skip(str(error))
        if compared.difference < 0.5:
            break
    # Slow enough that even a busy machine keeps up; the table in docs/simulation.md is taken with more care.
    assert 0.4 * case.link.bound < compared.measured <= case.link.bound
    assert -0.15 < compared.difference < 0.5, compared.row()
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"incast-{os.getpid()}-" not in left
