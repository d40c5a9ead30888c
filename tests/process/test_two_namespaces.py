"""Two network namespaces as two hosts: the block of docs/clusters.md, pasted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, said_by

DEADLINE_S = 120.0


def test_two_network_namespaces_are_two_hosts(engine: Path, tmp_path: Path) -> None:
    """Docs/clusters.md as it stands, but for the names and the time."""
    if os.geteuid() != 0 or said_by("ip", "netns", "list"):
        pytest.skip("makes network namespaces: as root, with iproute2")
    names = {name: f"incast-{name}-{os.getpid()}" for name in ("one", "two")}
    page = (ROOT / "docs" / "clusters.md").read_text()
    (block,) = re.findall(r"^```sh netns\n(.*?)^```", page, re.S | re.M)
    lines = [line.replace("--duration 10s", "--duration 1s") for line in block.splitlines()]
    script = "\n".join(lines)
    for name, unique in names.items():
        script = re.sub(rf"(?<!\S)(add|netns|exec|-n|delete|in) {name}\b", rf"\1 {unique}", script)
    script = script.replace(f"in {names['one']} two;", f"in {names['one']} {names['two']};")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "incast").write_text(f'#!/bin/sh\nexec {sys.executable} -m incast "$@"\n')
    (folder / "incast").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "INCAST_NODE": str(engine),
        "PYTHONPATH": str(ROOT / "python"),
    }
    try:
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    finally:
        for unique in names.values():
            said_by("ip", "netns", "delete", unique)
    assert done.returncode == 0, done.stderr
    assert "2 nodes join the run" in done.stderr
    assert re.search(r"^lost +0$", done.stdout, re.M), done.stdout
    assert re.search(r"4 nodes over tcp", done.stdout), done.stdout
