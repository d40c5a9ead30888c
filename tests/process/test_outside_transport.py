"""A transport outside the tree, built with the installed kit, passes the conformance suite and builds events.

As docs/adding-a-transport.md tells it, with the example that it ends with.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import ROOT, check_accounting

EXAMPLE = ROOT / "examples" / "transport"
NAME = "unix"


def must(*words: str | Path, cwd: Path | None = None, **variables: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(engine: Path) -> Path:
    """The build tree that the engine is of."""
    tree = engine.parent.parent
    if not (tree / "test-bin" / "conformance").exists() or not (tree / "kit" / "libincast-kit.a").exists():
        pytest.skip(f"{tree} holds no conformance program: configure it with INCAST_TESTS=ON and build everything")
    return tree


def cached(tree: Path, name: str) -> str:
    found = re.search(rf"^{name}:\w+=(.*)$", (tree / "CMakeCache.txt").read_text(encoding="utf-8"), re.M)
    return found[1] if found else ""


@pytest.fixture(scope="module")
def kit(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installed, and then moved elsewhere."""
    folder = tmp_path_factory.mktemp("kit")
    must("cmake", "--install", tree, "--component", "kit", "--prefix", folder / "first")
    return (folder / "first").rename(folder / "moved")


@pytest.fixture(scope="module")
def built(tree: Path, kit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's build folder, of a copy that is not in the source tree."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")
    compiler = cached(tree, "CMAKE_CXX_COMPILER")
    options = [f"-DCMAKE_PREFIX_PATH={kit}", f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"]
    must("cmake", "-S", folder / "source", "-B", folder / "build", *options)
    must("cmake", "--build", folder / "build")
    return folder / "build"


def test_the_kit_names_no_path_of_the_machine_that_built_it(tree: Path, kit: Path) -> None:
    files = [file for file in kit.rglob("*") if file.is_file()]
    assert {"incast-conformance", "libincast-kit.a", "abi.h", "session.h", "incast-kit-config.cmake"} <= {
        file.name for file in files
    }
    paths = [str(path).encode() for path in (ROOT, tree)]
    if cached(tree, "CMAKE_BUILD_TYPE") != "Release":  # debuggers want them
        files = [file for file in files if file.suffix in (".h", ".cmake")]
    assert [file for file in files if any(path in file.read_bytes() for path in paths)] == []


def test_it_passes_the_conformance_suite(built: Path, tmp_path: Path) -> None:
    """All of it: one test per clause, and none is skipped but those that look at the tree."""
    report = tmp_path / "report.json"
    must("ctest", "--test-dir", built, "--output-on-failure", cwd=tmp_path, GTEST_OUTPUT=f"json:{report}")
    suites = json.loads(report.read_text(encoding="utf-8"))["testsuites"]
    cases = [case for suite in suites for case in suite["testsuite"]]
    assert len(cases) > 200
    assert {case["name"].partition("/")[2].partition("_")[0] for case in cases if "/" in case["name"]} == {NAME}
    left_out = {case["name"] for case in cases if case["result"] == "SKIPPED" and "/" not in case["name"]}
    assert left_out == {
        "EveryClauseHasATestAndEveryTestAClause",
        "SettingsAreThoseOfTheCode",
        "EveryViolationIsCaughtByTheTestsOfItsClause",
    }
    why = [skipped["message"] for case in cases for skipped in case.get("skipped", []) if case["name"] in left_out]
    assert all("it looks at the source tree, and the transport is from outside" in reason for reason in why)


def refusal(kit: Path, folder: Path, **variables: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("INCAST_")}
    done = subprocess.run(
        [kit / "bin" / "incast-conformance"],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    return line


def test_what_the_suite_needs_is_one_line(kit: Path, built: Path, tmp_path: Path) -> None:
    modules = {"INCAST_TRANSPORT_MODULES": str(built)}
    assert "run this in the top folder of the sources, or name a transport" in refusal(kit, tmp_path)
    assert "INCAST_CONFORMANCE = 'unix': expected NAME=FILE" in refusal(kit, tmp_path, INCAST_CONFORMANCE="unix")
    missing = refusal(kit, tmp_path, INCAST_CONFORMANCE="unix=nowhere.txt", **modules)
    assert missing.startswith("incast-conformance: nowhere.txt is not there")
    assert "is not there" in refusal(kit, tmp_path, INCAST_CONFORMANCE="other=nowhere.txt", **modules)


def test_a_table_that_is_not_right_is_printed_as_it_would_be(kit: Path, built: Path, tmp_path: Path) -> None:
    rows = (EXAMPLE / "conformance.txt").read_text(encoding="utf-8").splitlines()
    (wanted,) = [row.split() for row in rows if row.startswith("TC_F5_AKilledProcessIsDown ")]
    empty = tmp_path / "empty.txt"
    empty.touch()
    done = subprocess.run(
        [kit / "bin" / "incast-conformance", f"--gtest_filter=*/Conformance.{wanted[0]}/{NAME}_*"],
        cwd=tmp_path,
        env={**os.environ, "INCAST_TRANSPORT_MODULES": str(built), "INCAST_CONFORMANCE": f"{NAME}=empty.txt"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].split() == wanted


def test_it_builds_events_between_processes(engine: Path, built: Path, tmp_path: Path) -> None:
    modules = {"INCAST_TRANSPORT_MODULES": str(built)}
    transports = json.loads(must(engine, "--info=json", **modules))["transports"]
    assert [each["available"] for each in transports if each["name"] == NAME] == [True]
    settings = {
        "transport.name": NAME,
        f"transport.{NAME}.send_buffer": "64KiB",
        "run.nodes": "3",
        "run.events": "3000",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    must(engine, *words, "--output", tmp_path / "out", **modules)
    result = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert result["status"] == "complete"
    assert result["complete_events"] == 3000
    check_accounting(result)


def test_a_wrong_setting_of_it_is_one_line(engine: Path, built: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [engine, "--set", f"transport.name={NAME}", "--set", f"transport.{NAME}.send_buffer=1"],
        env={**os.environ, "INCAST_TRANSPORT_MODULES": str(built)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"transport.{NAME}.send_buffer = 1" in line
