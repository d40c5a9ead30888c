"""Programs of others over network devices (docs/netdev.md): ssh, rsync, PostgreSQL, curl, a flood of pings.

They run where INCAST_NETDEV_ALL is set, as `make test-all` does. INCAST_NETDEV_MIB=1024: of each checked transfer. A
program that is not here is a visible skip.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from netdev_support import WAYS, Network, network
from support import must, said_by, wait_until

MEBIBYTES = int(os.environ.get("INCAST_NETDEV_MIB", "16"))
SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
SERVER = "10.9.0.2"
NOBODY = 65534
pytestmark = pytest.mark.skipif("INCAST_NETDEV_ALL" not in os.environ, reason="INCAST_NETDEV_ALL is not set")


@pytest.fixture(params=["rio-shm", "tcp"])
def devices(request: pytest.FixtureRequest, engine: Path, tmp_path: Path) -> Iterator[Network]:
    with network(engine, tmp_path, WAYS[request.param]) as made:
        yield made
        for index in range(2):
            assert made.total(index, "received_faulty", "received_refused", "dropped_full") == 0, made.status(index)


def need(*programs: str) -> None:
    """Of this host, or the test is skipped."""
    for program in programs:
        if shutil.which(program, path=SYSTEM_PATH) is None:
            pytest.skip(f"there is no {program}")


def inside(made: Network, index: int, *words: str) -> list[str]:
    return ["ip", "netns", "exec", made.names[index], *words]


def said(words: Sequence[str], timeout_s: float = 300) -> str:
    """What a program that succeeds prints."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def serving(words: Sequence[str], log: Path) -> Iterator[None]:
    """A server, ended with the block."""
    with log.open("wb") as file, subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def made_file(path: Path, mebibytes: int = MEBIBYTES) -> str:
    """So large; its digest."""
    block = random.Random(7).randbytes(1 << 20)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(mebibytes):
            file.write(block)
            digest.update(block)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def sshd(made: Network, folder: Path) -> Iterator[list[str]]:
    """On the second host; the command with which the first one asks for something there."""
    need("sshd", "ssh", "ssh-keygen")
    for key in ("host_key", "user_key"):
        must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    Path("/run/sshd").mkdir(exist_ok=True)
    options = {
        "ListenAddress": SERVER,
        "AuthorizedKeysFile": f"{folder}/user_key.pub",
        "StrictModes": "no",
        "PermitRootLogin": "prohibit-password",
        "UsePAM": "no",
        "PidFile": "none",
    }
    words = [str(shutil.which("sshd", path=SYSTEM_PATH)), "-D", "-e", "-f", "/dev/null", "-h", f"{folder}/host_key"]
    words += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    client = ["ssh", "-F", "/dev/null", "-i", f"{folder}/user_key", "-o", "StrictHostKeyChecking=no"]
    client += ["-o", f"UserKnownHostsFile={folder}/known_hosts", "-o", "LogLevel=ERROR"]
    with serving(inside(made, 1, *words), folder / "sshd.log"):
        wait_until(lambda: not said_by(*inside(made, 0, *client, SERVER, "true")), "sshd answers", 30)
        yield client


def test_ssh_and_rsync(devices: Network, tmp_path: Path) -> None:
    with sshd(devices, tmp_path) as ssh:
        digest = made_file(tmp_path / "data")
        command = f"{' '.join(inside(devices, 0, *ssh, SERVER, 'sha256sum'))} < {tmp_path}/data"
        assert said(["sh", "-c", command]).split()[0] == digest
        need("rsync")
        words = ["rsync", "-e", " ".join(ssh), "--whole-file", f"{tmp_path}/data", f"{SERVER}:{tmp_path}/copy"]
        said(inside(devices, 0, *words))
        assert digest_of(tmp_path / "copy") == digest


def test_curl(devices: Network, tmp_path: Path) -> None:
    need("curl")
    digest = made_file(tmp_path / "data")
    serve = ["-m", "http.server", "--bind", SERVER, "--directory", str(tmp_path), "8000"]
    fetch = inside(devices, 0, "curl", "-sSf", "-o", str(tmp_path / "copy"), f"http://{SERVER}:8000/data")
    with serving(inside(devices, 1, sys.executable, *serve), tmp_path / "http.log"):
        probe = inside(devices, 0, "curl", "-sSf", "-o", "/dev/null", "-I", f"http://{SERVER}:8000/data")
        wait_until(lambda: not said_by(*probe), "the server answers")
        said(fetch)
    assert digest_of(tmp_path / "copy") == digest


def test_a_flood_of_pings(devices: Network) -> None:
    """One after the other as fast as they come back: all of them do."""
    need("ping")
    count = 20 * MEBIBYTES
    told = said(inside(devices, 0, "ping", "-f", "-q", "-n", "-c", str(count), "-s", "1400", SERVER))
    assert f"{count} packets transmitted, {count} received" in told, told


def test_postgresql(devices: Network, tmp_path: Path) -> None:
    """Many connections at once, whose changes must add up."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
    if not homes:
        pytest.skip("there is no PostgreSQL server")
    home = homes[-1].parent
    # Its server does not run as root, and nobody else gets into the folders of pytest.
    folder = Path(tempfile.mkdtemp(prefix="incast-netdev-pg-"))
    try:
        os.chown(folder, NOBODY, NOBODY)
        drop = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
        make = [str(home / "initdb"), "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "--no-sync"]
        said([*drop, *make])
        with (folder / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all 10.9.0.0/24 trust\n")
        serve = [str(home / "postgres"), "-D", str(folder / "data"), "-h", SERVER, "-k", str(folder), "-F"]
        asked = ["-h", SERVER, "-U", "tester"]
        with serving(inside(devices, 1, *drop, *serve), tmp_path / "postgres.log"):
            ready = inside(devices, 0, str(home / "pg_isready"), *asked)
            wait_until(lambda: not said_by(*ready), "the server answers", 60)
            said(inside(devices, 0, str(home / "pgbench"), *asked, "-i", "-q", "postgres"))
            said(inside(devices, 0, str(home / "pgbench"), *asked, "-c", "8", "-j", "2", "-t", "100", "postgres"))
            sums = (
                "select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches), "
                "(select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history), "
                "(select count(*) from pgbench_history)"
            )
            told = said(inside(devices, 0, str(home / "psql"), *asked, "-t", "-A", "-c", sums, "postgres"))
            accounts, branches, tellers, history, count = map(int, told.strip().split("|"))
            assert accounts == branches == tellers == history
            assert count == 800
    finally:
        shutil.rmtree(folder)
