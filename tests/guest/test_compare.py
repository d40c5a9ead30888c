"""The stacks on RDMA beside each other, and beside TCP, on two soft-RoCE nodes: `incast net --compare` (docs/net.md).

An emulated processor does everything, so its figures are no measurement of any network; they show which stack costs
how much of it. -s prints the tables.
"""

import json
from pathlib import Path

import pytest
from guest.steps import Step
from in_guest import ADDRESSES, HAS_VERBS, ROOT, GuestRun, out_folder
from transports import RDS, SOCKETS

RSOCKETS = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
SIZES = "4KiB,64KiB"
STACKS = [*(["verbs"] if HAS_VERBS else []), f"{RDS}:carrier=rdma", SOCKETS]
SETTINGS = {
    "protocol.detection_deadline": "60s",
    "transport.verbs.bind": ADDRESSES,
    f"transport.{RDS}.bind": ADDRESSES,
    f"transport.{RDS}.connect_timeout": "60s",
    f"transport.{RDS}.deadline": "60s",
    f"transport.{SOCKETS}.bind": "10.0.0.1",
}


def net(name: str, *words: str, settings: dict[str, str], before: str = "") -> Step:
    sets = " ".join(f"--set '{key}={value}'" for key, value in settings.items())
    pair = "--nodes 2 --pattern one-to-one --duration 1s --warm-up 300ms"
    said = f">/out/{name}.txt 2>&1 || {{ cat /out/{name}.txt; exit 1; }}"
    program = f"COLUMNS=80 {before} '{ROOT}/.venv/bin/incast' net"
    return Step(name, f"{program} {pair} {sets} {' '.join(words)} --output /out/{name} {said}", 400)


@pytest.mark.usefixtures("everything")
def test_stacks_on_rdma_are_compared(guest: GuestRun, tmp_path: Path) -> None:
    sockets = {f"transport.{SOCKETS}.bind": "10.0.0.1", f"transport.{SOCKETS}.wait": "poll"}
    steps = [
        Step("nodes", "rds-nodes.sh rdma 4"),
        net("stacks", f"--compare {','.join(STACKS)} --rounds 3 --message-size {SIZES}", settings=SETTINGS),
    ]
    for name, words in (
        ("rsockets-4k", "--message-size 4KiB"),
        ("rsockets-64k", "--message-size 64KiB"),
        ("rsockets-ping", "--measure latency --message-size 64B"),
    ):
        steps.append(net(name, f"--transport {SOCKETS}", words, settings=sockets, before=f"LD_PRELOAD={RSOCKETS}"))
    results = guest(steps)
    folder = out_folder(tmp_path)
    for step in steps:
        assert results[step.name].status == 0, results[step.name]
        if (text := folder / f"{step.name}.txt").is_file():
            print(text.read_text())
    compared = json.loads((folder / "stacks" / "result.json").read_text())
    assert (compared["left_out"], compared["unfinished"]) == ([], [])
    assert len(compared["transports"]) == len(STACKS)
    for stack in compared["transports"]:
        assert [size["verify_errors"] for size in stack["goodput"]] == [0, 0], stack
        assert all(min(size["bytes_per_s"]) > 0 for size in stack["goodput"]), stack
    for step in steps[2:]:
        result = json.loads((folder / step.name / "result.json").read_text())
        assert (result["status"], result["verify_errors"]) == ("complete", 0), result
