"""ROOT over channels (docs/root.md): its own programs, unchanged, and the sockets that have addresses of channels.

Runs where `bridges/root/build.sh build/root` has made the library, or what INCAST_ROOT_BRIDGE names.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, said_by

BRIDGE = Path(os.environ.get("INCAST_ROOT_BRIDGE", ROOT / "build" / "root"))
NETWORK = ["unshare", "--map-root-user", "--net"]
# `filterwarnings` is for this process alone; ROOT warns that its package is young.
PYTHON = [str(BRIDGE / "venv" / "bin" / "python"), "-W", "ignore"]

pytestmark = [
    pytest.mark.skipif(
        not (BRIDGE / "lib" / "libIncastRoot.so").exists(), reason="bridges/root/build.sh build/root was not run"
    ),
    pytest.mark.skipif(said_by(*NETWORK, "true") != "", reason="no network namespaces here"),
]


def test_tutorials_give_what_they_give_over_sockets() -> None:
    program = ROOT / "bridges/root/tutorials/run.py"
    words = [sys.executable, str(program), str(BRIDGE), "--only", "hserv", "--over", "shm", "--timeout", "60"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hserv over shm: equal" in done.stdout


def test_the_first_program_of_the_document_runs(tmp_path: Path) -> None:
    """docs/root.md: its lines, as they stand there, in a network of its own, as they name a port."""
    document = (ROOT / "docs/root.md").read_text()
    example = re.search(r"```\n(export LD_PRELOAD=.*?)```", document, re.S)
    assert example is not None
    preload, serve, ask = example[1].replace("build/root/", f"{BRIDGE}/").replace("$PWD/", "").splitlines()
    assert serve.endswith(" &")
    script = f"""
        ip link set lo up || exit 1
        {preload}
        {serve[:-2]} > {tmp_path}/served.txt 2>&1 &
        tail -f --pid $! {tmp_path}/served.txt 2>/dev/null | grep -q -m 1 listens
        {ask}
        wait
    """
    words = [*NETWORK, "sh", "-c", script]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert "hpx has 10000 entries" in done.stdout
    assert "a socket is tried" not in done.stderr + (tmp_path / "served.txt").read_text()
