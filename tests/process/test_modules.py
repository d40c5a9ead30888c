"""Transports that are modules: what is missing or does not fit is one line, and hinders nothing else."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from support import ROOT
from transports import MPI, OFI, RDS, UCX, VERBS  # modules, too, whose host may have no device or library

NAME = "rio"  # the transport that is a module
FILE = f"incast-transport-{NAME}.so"
# What runs when a shared object is loaded, and leaves a trace.
LOUD = """
#include <stdio.h>
__attribute__((constructor)) static void loud(void) { fclose(fopen(TRACE, "w")); }
"""
STRANGER = (
    LOUD + "extern const char incast_abi_of_another_build; const void* const needs = &incast_abi_of_another_build;\n"
)


def compiled(folder: Path, name: str, code: str, *options: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(code, encoding="utf-8")
    library = folder / name
    subprocess.run(
        ["cc", "-shared", "-fPIC", f'-DTRACE="{folder / "loaded"}"', "-o", str(library), str(source), *options],
        check=True,
    )
    return library


def info(engine: Path, folder: Path) -> dict[str, object]:
    done = subprocess.run(
        [engine, "--info=json"],
        env={**os.environ, "INCAST_TRANSPORT_MODULES": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    transports = json.loads(done.stdout)["transports"]
    others = (NAME, MPI, OFI, RDS, UCX, VERBS)
    assert all(transport["available"] for transport in transports if transport["name"] not in others)
    found: dict[str, object] = next(transport for transport in transports if transport["name"] == NAME)
    return found


def refusal(engine: Path, folder: Path, tmp_path: Path) -> str:
    done = subprocess.run(
        [engine, "--set", f"transport.name={NAME}", "--set", "run.events=100", "--output", str(tmp_path / "out")],
        env={**os.environ, "INCAST_TRANSPORT_MODULES": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()
    (line,) = done.stderr.splitlines()
    return line.removeprefix("incast-node: ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "modules"
    made.mkdir()
    return made


def test_a_module_that_is_not_there(engine: Path, folder: Path, tmp_path: Path) -> None:
    line = f"transport {NAME}: its module {folder / FILE} is not there; the package incast-{NAME} brings it"
    assert info(engine, folder)["reason"] == line
    assert refusal(engine, folder, tmp_path) == line


def test_a_module_of_another_build_is_refused_before_its_code_runs(engine: Path, folder: Path, tmp_path: Path) -> None:
    compiled(folder, FILE, STRANGER)
    line = str(info(engine, folder)["reason"])
    assert line.startswith(f"transport {NAME}: {folder / FILE} is of another build: it asks for incast_abi_of_another_")
    assert line.endswith("; install both from one build")
    assert refusal(engine, folder, tmp_path) == line
    assert not (folder / "loaded").exists()


def test_a_module_without_its_symbol(engine: Path, folder: Path, tmp_path: Path) -> None:
    compiled(folder, FILE, "int nothing;\n")
    line = f"transport {NAME}: its module cannot be loaded: it has no symbol incast_transport_module"
    assert info(engine, folder)["reason"] == line
    assert refusal(engine, folder, tmp_path) == line


def test_a_module_with_a_symbol_that_nothing_has(engine: Path, folder: Path, tmp_path: Path) -> None:
    compiled(folder, FILE, LOUD + "void nobody_has_it(void); void call(void) { nobody_has_it(); }\n")
    line = refusal(engine, folder, tmp_path)
    assert line.startswith(f"transport {NAME}: its module cannot be loaded: ")
    assert "undefined symbol: nobody_has_it" in line
    assert not (folder / "loaded").exists()


def test_a_library_that_is_not_installed(engine: Path, folder: Path, tmp_path: Path) -> None:
    library = compiled(folder, "libfabric_of_nobody.so", "int there;\n")
    compiled(folder, FILE, "extern int there; int* needed = &there;\n", str(library), "-Wl,--no-as-needed")
    library.unlink()
    line = str(info(engine, folder)["reason"])
    assert line.startswith(f"transport {NAME}: it needs the library ")
    assert line.endswith(f"libfabric_of_nobody.so, which is not installed; the package incast-{NAME} brings it")
    assert refusal(engine, folder, tmp_path) == line


def test_a_module_from_outside_that_does_not_fit_is_known_by_name(engine: Path, folder: Path, tmp_path: Path) -> None:
    compiled(folder, "incast-transport-mine.so", STRANGER)
    done = subprocess.run(
        [engine, "--set", "transport.name=mine", "--output", str(tmp_path / "out")],
        env={**os.environ, "INCAST_TRANSPORT_MODULES": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "transport mine: " in done.stderr
    assert "is of another build" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["--device", "mlx5_none"], ["--device"], ["--device", ""], ["mlx5_0"]])
def test_tests_on_a_device_that_is_not_there_are_refused_in_one_line(words: list[str]) -> None:
    done = subprocess.run([ROOT / "test", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(("./test: this host has no RDMA device mlx5_none; it has ", "usage: ./test [--device NAME]"))
