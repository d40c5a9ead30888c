"""Ring channels from C: the installed library, found by pkg-config, between two processes."""

import errno
import os
import re
import shutil
import subprocess
import sys
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
    """What `cmake --install` puts there for those who build against it, moved elsewhere."""
    folder = tmp_path_factory.mktemp("installed")
    words = ["cmake", "--install", str(engine.parent.parent), "--component", "channel", "--prefix"]
    subprocess.run([*words, str(folder / "first")], check=True, capture_output=True, timeout=60)
    return (folder / "first").rename(folder / "moved")


def library_folder(installed: Path) -> Path:
    """lib, or lib/x86_64-linux-gnu."""
    (found,) = installed.rglob("libincast-channel.so")
    return found.parent


def build(installed: Path, source: Path, program: Path) -> None:
    folder = library_folder(installed)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(folder / "pkgconfig")}
    words = ["pkg-config", "--cflags", "--libs", "incast-channel"]
    asked = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    flags = asked.stdout.split()
    assert folder in [Path(flag[2:]).resolve() for flag in flags if flag.startswith("-L")], flags
    subprocess.run([*STRICT, "-o", str(program), str(source), *flags, f"-Wl,-rpath,{folder}"], check=True, timeout=120)


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


def test_a_process_has_the_destination_id_it_asks_for(stream: Path) -> None:
    environment = {**os.environ, "RIO_FABRIC": f"shm:c-id-{os.getpid()}"}
    asking = environment | {"RIO_DESTID": "77"}
    with subprocess.Popen(
        [stream, "serve", "rio://77:9", "1000"], env=asking, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline().strip() == "rio://77:9"
        joined = subprocess.run([stream, "join", "rio://77:9", "1000"], env=environment, check=False, timeout=120)
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


def test_a_module_is_looked_for_beside_the_library(installed: Path, engine: Path) -> None:
    """By a program of somebody else, which loaded the library for itself alone."""
    folder = library_folder(installed)
    script = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.incast_channel_message.restype = ctypes.c_char_p
hub = ctypes.c_void_p()
print(library.incast_channel_hub_make(b"verbs", None, ctypes.byref(hub)), library.incast_channel_message().decode())
"""
    words = [sys.executable, "-c", script, str(folder / "libincast-channel.so")]
    environment = {name: value for name, value in os.environ.items() if name != "INCAST_TRANSPORT_MODULES"}
    missing = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    refusal = f"-{errno.EPROTONOSUPPORT} transport verbs: its module {folder}/incast/incast-transport-verbs.so is not"
    assert missing.stdout.startswith(refusal), missing.stdout
    module = engine.parent.parent / "lib/incast/incast-transport-verbs.so"
    if not module.is_file():
        pytest.skip("no module of verbs: its libraries are not there")
    (folder / "incast").mkdir()
    shutil.copy(module, folder / "incast")
    found = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.startswith("0 "), found.stdout
