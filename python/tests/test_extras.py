"""Without the libraries of the extras the package does all that needs none of them, and says which extra is missing."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from incast.base.extras import EXTRA_OF
from incast.formats import encode_mfp

from tests.conftest import DEADLINE_S, Incast
from tests.mep_folder import MepFolder

ROOT = Path(__file__).resolve().parents[2]
PIP = f"{sys.executable} -m pip install"
_ALONE = """
import importlib, pkgutil, incast
missing = []
for module in pkgutil.walk_packages(incast.__path__, "incast."):
    if module.name not in ("incast.__main__", "incast.consumer"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing.append(f"{module.name}:{error.name}")
print(*missing)
"""


@pytest.fixture
def bare(incast: Incast) -> Incast:
    """The command in a folder where those libraries, which may be installed here, are as if they were not."""
    for library in EXTRA_OF:
        text = f"raise ModuleNotFoundError('No module named {library}', name='{library}')\n"
        (incast.folder / f"{library}.py").write_text(text)
    return incast


def test_the_table_of_extras_is_that_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    used = ("root", "lab", "hosts", "dask", "tune")
    wanted = {line.partition(">")[0]: extra for extra in used for line in extras[extra]}
    assert wanted == EXTRA_OF


def test_every_module_imports_without_them_but_those_that_use_them_in_all(bare: Incast) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ALONE],
        cwd=bare.folder,
        env=bare.full_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "incast.data.branch_codec:awkward",
        "incast.data.import_root:awkward",
        "incast.data.root_tree:awkward",
        "incast.hosts.fanout:ClusterShell",
    ]


def test_runs_scans_and_comparisons_need_none_of_them(bare: Incast) -> None:
    (bare.folder / "scan.toml").write_text('seconds = 0.01\nwarm_up_seconds = 0\n[grid]\n"run.nodes" = [2]\n')
    for name in ("one", "other"):
        assert bare("run", "--output", name).returncode == 0
    done = bare("scan", "scan.toml", "--output", "scan")
    assert done.returncode == 0, done.stderr
    assert f"table.parquet was not written; it needs polars: {PIP} 'incast[lab]'" in done.stderr
    assert (bare.folder / "scan" / "table.csv").is_file()
    assert not (bare.folder / "scan" / "table.parquet").exists()
    done = bare("compare", "one", "other")
    assert done.returncode == 0, done.stderr


def test_files_of_built_events_need_none_of_them(bare: Incast) -> None:
    folder = MepFolder(bare.folder / "meps")
    folder.append(0, [encode_mfp(0, 0, [3, 3], b"onetwo")])
    done = bare("mep", "check", str(folder.path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("report", "."), f"incast: incast report needs matplotlib: {PIP} 'incast[lab]'\n"),
        (
            ("scan", "scan.toml", "--executor", "dask:head:1"),
            f"incast: a scan over a cluster needs distributed: {PIP} 'incast[dask]'\n",
        ),
        (("tune",), f"incast: incast tune needs optuna: {PIP} 'incast[tune]'\n"),
        (("import-root", "a.root"), f"incast: this needs awkward: {PIP} 'incast[root]'\n"),
        (
            ("mep", "compare", ".", "--root", "a.root", "--sources", "."),
            f"incast: this needs awkward: {PIP} 'incast[root]'\n",
        ),
    ],
)
def test_what_needs_one_is_one_line_with_the_extra(bare: Incast, words: tuple[str, ...], line: str) -> None:
    done = bare(*words)
    assert done.returncode != 0
    assert done.stderr == line
