"""docs/tour.md, pasted block by block into one shell: boards, a builder, a farm."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT


def free_ports(count: int) -> list[int]:
    """So many in a row, which nobody has over udp or tcp."""
    for first in range(20000 + os.getpid() % 20000, 60000, 10):
        sockets = []
        try:
            for port in range(first, first + count):
                for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                    sockets.append(socket.socket(socket.AF_INET, kind))
                    sockets[-1].bind(("127.0.0.1", port))
            return list(range(first, first + count))
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    pytest.fail("no free ports")


def test_the_tour(engine: Path, name: str, tmp_path: Path) -> None:
    """Every block in order; the last one checks that no event is missing."""
    pytest.importorskip("numpy")
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    script = "set -e\n" + "".join(blocks)
    boards, farm = free_ports(2), free_ports(5)[4]
    for given, own in (("47101", boards[1]), ("47100", boards[0]), ("47200", farm)):
        script = script.replace(given, str(own))
    # What processes attach to is one name for the host.
    script = (
        re.sub(r"\bdaq\b", f"{name}-d", script).replace("filters ", f"{name}-f ").replace('"filters"', f'"{name}-f"')
    )
    program = tmp_path / "bin" / "incast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m incast "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "INCAST_NODE": str(engine),
        "COLUMNS": "80",
    }
    said_file = tmp_path / "said.txt"
    with said_file.open("w") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(timeout=150)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # of a shell that failed what it began goes on
            shell.wait()
    said = said_file.read_text()
    logs = "".join(f"\n--- {file.name}\n{file.read_text()[-1500:]}" for file in sorted(tmp_path.glob("*.log")))
    assert shell.returncode == 0, said + logs
    assert re.search(r"events in files, \d+ for the program", said), said
    assert re.search(r"\d+ of \d+ events kept", said), said
