"""Two stages of building: what the second one built, taken apart, is what one stage builds, byte by byte."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from incast.data import mep_rearrange, stages
from incast.data.mep import read
from incast.formats import read_mfps
from support import ROOT, Run, Start, check_accounting, wait_until
from transports import ONE_THREAD, SHARED_MEMORY

PACKING = 16
MEPS = 40


class Forward:
    """`incast forward` from one run to a source of another."""

    def __init__(self, name: str, to: str, source: int, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "incast", "forward", name, to, "--source", str(source)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def counts(self) -> dict[str, int]:
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        counts: dict[str, int] = json.loads(out)
        return counts


StartForward = Callable[[str, str, int], Forward]


@pytest.fixture
def forward(engine: Path) -> Iterator[StartForward]:
    environment = {**os.environ, "INCAST_NODE": str(engine), "PYTHONPATH": str(ROOT / "python")}
    begun: list[Forward] = []

    def begin(name: str, to: str, source: int) -> Forward:
        begun.append(Forward(name, to, source, environment))
        return begun[-1]

    yield begin
    for each in begun:
        each.process.kill()
        each.process.communicate()


COMMON = {
    "protocol.packing": PACKING,
    "protocol.detection_deadline": "60s",
    "protocol.late_after": "60s",
    "run.drain_deadline": "60s",
    "run.fail_above_incomplete": 1,
}


def one_stage(start: Start, folder: Path, rus: int, per_ru: int) -> Path:
    """All events in one stage: a file of MEPs, and a folder with what each source sent."""
    run = start(
        {
            **COMMON,
            "run.nodes": rus,
            "run.events": PACKING * MEPS - 3,
            "transport.name": ONE_THREAD,
            "source.sources_per_ru": per_ru,
            "source.size_distribution": "lognormal",
            "source.fragment_size": "1KiB",
            "source.fill": "generated",
            "sink.kind": "mep",
            "sink.path": folder / "once",
        }
    )
    assert run.finish(120) == 0, run.story()
    mep_rearrange.merge([folder / "once"], folder / "once.mep")
    mep_rearrange.sources([folder / "once"], folder / "sources")
    return folder / "once.mep"


def group(folder: Path, number: int, sources: range) -> Path:
    """The sources of one group of the first stage."""
    made = folder / f"group-{number}"
    made.mkdir()
    for each in read_all(folder / "sources", sources):
        (made / each.name).write_bytes(each.read_bytes())
    return made


def read_all(folder: Path, sources: range) -> list[Path]:
    files = sorted(folder.iterdir())
    return [file for file in files if next(read_mfps(file)).source in sources]


def first_stage(start: Start, name: str, sources: Path, rus: int) -> Run:
    return start(
        {
            **COMMON,
            "run.roles": "split",
            "run.nodes": rus + 1,
            "run.readout_units": rus,
            "run.builder_units": 1,
            "transport.name": ONE_THREAD,
            "source.kind": "mfp",
            "source.path": sources,
            "sink.kind": "consumer",
            "sink.name": name,
        }
    )


def second_stage(start: Start, folder: Path, name: str, groups: int, **more: Any) -> Run:
    return start(
        {
            **COMMON,
            "run.nodes": groups,
            "run.events": MEPS,
            "protocol.packing": 1,
            "source.kind": "program",
            "source.name": name,
            "source.largest_mfp": "1MiB",
            "source.patience": "100s",
            "source.window": 8,
            "sink.kind": "mep",
            "sink.path": folder / "twice",
            **{key.replace("__", "."): value for key, value in more.items()},
        }
    )


def test_eight_by_four_to_four_to_four_is_one_stage(
    start: Start, forward: StartForward, name: str, tmp_path: Path
) -> None:
    once = one_stage(start, tmp_path, 8, 4)
    second = second_stage(start, tmp_path, name, 4, transport__name=SHARED_MEMORY)
    groups = [group(tmp_path, number, range(8 * number, 8 * number + 8)) for number in range(4)]
    firsts = [first_stage(start, f"{name[:50]}-{number}", folder, 2) for number, folder in enumerate(groups)]
    forwards = [forward(f"{name[:50]}-{number}", name, number) for number in range(4)]
    assert second.finish(120) == 0, second.story()
    for each in firsts:
        assert each.finish(60) == 0, each.story()
    check_accounting(second.result())
    assert second.result()["complete_events"] == MEPS
    for counts in (each.counts() for each in forwards):
        assert counts["meps"] == MEPS
        assert counts["incomplete_meps"] == counts["missing_meps"] == 0
    done = stages.unpack([tmp_path / "twice"], tmp_path / "unpacked.mep")
    assert (done.meps, done.incomplete_meps, done.lost_super_fragments) == (MEPS, 0, 0)
    assert (tmp_path / "unpacked.mep").read_bytes() == once.read_bytes()


def flags_of(file: Path) -> dict[int, dict[int, set[str]]]:
    """By MEP and source."""
    found: dict[int, dict[int, set[str]]] = {}
    for mep in read(file):
        sources = found.setdefault(mep.first_event // PACKING, {})
        for mfp in mep.mfps:
            kinds = zip(mfp.missing(), mfp.types, strict=True)
            sources[mfp.source] = {str(int(kind) & 15) if gone else "ok" for gone, kind in kinds}
    return found


def is_attached(name: str, source: int) -> bool:
    """Somebody is connected there, besides the readout unit that listens."""
    listening = Path("/proc/net/unix").read_text(errors="replace")  # other names are any bytes
    return listening.count(f"@incast-source/{name}/{source}\n") > 1


def test_flags_losses_and_a_forwarder_that_is_killed(
    start: Start, forward: StartForward, name: str, tmp_path: Path
) -> None:
    one_stage(start, tmp_path, 2, 2)
    groups = [group(tmp_path, number, range(2 * number, 2 * number + 2)) for number in range(2)]
    # Source 1 has the first half of its MFPs; what it lacks is flagged in the first stage.
    (cut,) = read_all(groups[0], range(1, 2))
    packets = [mfp.packet.tobytes() for mfp in read_mfps(cut)]
    cut.write_bytes(b"".join(packets[: MEPS // 2]))
    second = second_stage(start, tmp_path, name, 2, transport__name=ONE_THREAD, source__patience="60s")
    names = [f"{name[:50]}-{number}" for number in range(2)]
    firsts = [first_stage(start, names[number], groups[number], 1) for number in range(2)]
    killed = forward(names[1], name, 1)
    wait_until(lambda: is_attached(name, 1), "the forwarder that is killed")
    killed.process.kill()
    # What it committed is taken before another one has its place: for that the other source has to come along.
    whole = forward(names[0], name, 0)
    wait_until(lambda: not is_attached(name, 1), "its end")
    again = forward(names[1], name, 1)
    assert second.finish(120) == 0, second.story()
    for each in firsts:
        assert each.finish(60) == 0, each.story()
    assert again.counts()["meps"] <= MEPS
    assert whole.counts()["incomplete_meps"] == MEPS // 2
    stages.unpack([tmp_path / "twice"], tmp_path / "unpacked.mep")
    found = flags_of(tmp_path / "unpacked.mep")
    assert sorted(found) == list(range(MEPS))
    for mep, sources in found.items():
        assert sorted(sources) == [0, 1, 2, 3]
        assert sources[0] == {"ok"}
        assert sources[1] == {"ok"} if mep < MEPS // 2 else sources[1] != {"ok"}
        assert sources[2] == sources[3] == {"ok"}


def test_the_commands_of_the_document(engine: Path, name: str, tmp_path: Path) -> None:
    """docs/dataflow.md as it stands, but for the ports, which the kernel chooses here, and the names of the runs."""
    text = (ROOT / "docs" / "dataflow.md").read_text()
    text = text[text.index("# Two stages") :]
    begin, end = (block.replace("\\\n", "") for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[:2])
    for word in ("group0", "group1", "second"):
        begin = re.sub(rf"(?<!--output)([: ]){word} ", rf"\g<1>{name[:50]}-{word} ", begin)
    begin = re.sub(r"udp:\d+", "udp:0", begin)
    environment = {**os.environ, "INCAST_NODE": str(engine), "PYTHONPATH": str(ROOT / "python")}
    *commands, emit = (shlex.split(line.removesuffix("&"))[1:] for line in begin.splitlines())
    assert len(commands) == 5

    def begun(words: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "incast", *words], cwd=tmp_path, env=environment)

    def told() -> list[str]:
        logs = [tmp_path / group / "log.txt" for group in ("group0", "group1")]
        texts = [log.read_text() if log.exists() else "" for log in logs]
        pattern = r"boards of sources (\d+) to \d+ send to (\S+)"
        return [to for text in texts for _, to in sorted(re.findall(pattern, text))]

    running = [begun(words) for words in commands]
    try:
        wait_until(lambda: len(told()) == 4, "all addresses", 60)
        emit[emit.index("--to") + 1] = ",".join(told())
        assert begun(emit).wait(120) == 0
        assert [each.wait(120) for each in running] == [0] * 5
    finally:
        for each in running:
            each.kill()
            each.wait()
    for line in end.splitlines():
        assert begun(shlex.split(line)[1:]).wait(60) == 0
    assert sum(1 for _ in read(tmp_path / "once.mep")) == 1000
    assert next(read(tmp_path / "once.mep")).mfps[-1].source == 7
