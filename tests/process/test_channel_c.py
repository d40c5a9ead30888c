"""Ring channels from C: the installed library, found by pkg-config, between two processes."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import ROOT, private_network

STRICT = ["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror"]
PLACES = {
    "shm": f"shm://c-{os.getpid()}",
    "tcp": "tcp://127.0.0.1:*",
    "udp": "udp://127.0.0.1:*",
    "rio_shm": "rio://*:*",
    "rio_udp": "rio://*:*",
}


@pytest.fixture(scope="module")
def installed(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `cmake --install` puts there for those who build against it: the parts of it that concern channels."""
    prefix = tmp_path_factory.mktemp("installed")
    build = engine.parent.parent
    for file in (build / "lib").glob("libincast-channel.so*"):
        (prefix / "lib").mkdir(exist_ok=True)
        shutil.copy(file, prefix / "lib", follow_symlinks=False)
    shutil.copytree(ROOT / "include", prefix / "include")
    text = (ROOT / "src/channel/api/incast-channel.pc.in").read_text()
    for name, value in {
        "CMAKE_INSTALL_PREFIX": str(prefix),
        "CMAKE_INSTALL_LIBDIR": "lib",
        "CMAKE_INSTALL_INCLUDEDIR": "include",
        "PROJECT_VERSION": "0",
    }.items():
        text = text.replace(f"@{name}@", value)
    (prefix / "lib/pkgconfig").mkdir()
    (prefix / "lib/pkgconfig/incast-channel.pc").write_text(text)
    return prefix


def build(installed: Path, source: Path, program: Path) -> None:
    environment = {**os.environ, "PKG_CONFIG_PATH": str(installed / "lib/pkgconfig")}
    words = ["pkg-config", "--cflags", "--libs", "incast-channel"]
    asked = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    flags = asked.stdout.split()
    path = f"-Wl,-rpath,{installed / 'lib'}"
    subprocess.run([*STRICT, "-o", str(program), str(source), *flags, path], check=True, timeout=120)


@pytest.fixture(scope="module")
def stream(installed: Path) -> Path:
    program = installed / "stream"
    build(installed, ROOT / "tests/channel/stream.c", program)
    return program


@pytest.mark.parametrize("place", sorted(PLACES))
def test_two_processes_exchange_bytes(stream: Path, place: str) -> None:
    count = "3000000"
    fabric = private_network() if place == "rio_udp" else f"shm:c-{os.getpid()}"
    environment = {**os.environ, "RIO_FABRIC": fabric}
    with subprocess.Popen(
        [stream, "serve", PLACES[place], count], env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert address.startswith(place.partition("_")[0] + "://") and not address.endswith("*")
        joined = subprocess.run([stream, "join", address, count], env=environment, check=False, timeout=120)
        assert joined.returncode == 0
        assert server.wait(120) == 0


def test_the_example_of_the_document_runs(installed: Path, tmp_path: Path) -> None:
    """docs/channel.md: its program is compiled as it stands there, and talks to itself."""
    document = (ROOT / "docs/channel.md").read_text()
    example = re.search(r"```c\n(#include <incast/channel.h>.*?)```", document, re.S)
    assert example is not None
    source = tmp_path / "example.c"
    source.write_text(example[1])
    build(installed, source, tmp_path / "example")
    words = [str(tmp_path / "example"), f"shm://example-{os.getpid()}"]
    with subprocess.Popen([*words, "listen"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == f"{words[1]}\n"
        said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert (said.returncode, said.stdout) == (0, "hello\n"), said.stderr
        assert server.wait(60) == 0
