"""Ring channels from C over soft RDMA devices: `verbs://HOST:PORT`."""

import subprocess
from pathlib import Path

import pytest
from guest.steps import Step
from in_guest import BIN, HAS_VERBS, ROOT, VERBS, GuestRun

pytestmark = pytest.mark.skipif(not HAS_VERBS, reason=f"{VERBS} is not built: its libraries are not there")

TREE = BIN.parent
API_TEST = TREE / "test-bin" / "channel_api_test"
# Two processes, each with a device of its own. A processor that stands still for seconds is no lost peer.
STREAM = """
{stream} serve 'verbs://10.0.0.1:*' {count} >/run/address &
until read -r address </run/address; do kill -0 $! || exit 1; sleep 0.05; done
echo "$address"
{stream} join "$address" {count} 10.0.0.2 && wait $!
"""


def stream_program(folder: Path) -> Path:
    """tests/channel/stream.c against the library of this build."""
    program = folder / "stream"
    library = TREE / "lib"
    flags = ["-I", str(ROOT / "include"), f"-L{library}", f"-Wl,-rpath,{library}", "-lincast-channel"]
    source = ROOT / "tests" / "channel" / "stream.c"
    subprocess.run(["cc", "-std=c11", "-O1", "-o", str(program), str(source), *flags], check=True, timeout=120)
    return program


@pytest.mark.usefixtures("everything")
def test_c_programs_exchange_bytes_over_soft_roce(guest: GuestRun, tmp_path: Path) -> None:
    """Two processes by two devices; then the cases of the C interface; and who asks for no device has one line."""
    stream = stream_program(tmp_path)
    api = f"exec env INCAST_CHANNEL_RDMA_HOST=10.0.0.1 '{API_TEST}' --gtest_brief=1 --gtest_filter='*/verbs'"
    wrong = f"'{stream}' serve 'verbs://127.0.0.1:*' 1"
    results = guest(
        [
            Step("nodes", "rdma-nodes.sh rxe 2"),
            Step("stream", STREAM.format(stream=stream, count=3_000_000), 120),
            Step("api", f"cd '{ROOT}' && {api}", 180),
            Step("wrong", wrong),
        ]
    )
    for name in ("nodes", "stream", "api"):
        print(f"{name}: {results[name].seconds:.1f} s")
        assert results[name].status == 0, results[name]
    assert results["stream"].output.startswith("verbs://10.0.0.1:")
    assert results["wrong"].status == 1
    assert "right is an address of an RDMA device" in results["wrong"].output, results["wrong"]
