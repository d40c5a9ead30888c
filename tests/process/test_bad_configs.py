"""A bad configuration costs one clear line that names the key, its value and what is allowed, and exit status 2."""

import subprocess
from pathlib import Path

import pytest
from transports import NAMES, SHARED_MEMORY, SIMULATED, SOCKETS


def refusal(engine: Path, tmp_path: Path, *arguments: str) -> str:
    """The one line on standard error."""
    done = subprocess.run(
        [str(engine), "--output", str(tmp_path / "out"), *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2, done
    lines = done.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("incast-node: ")
    assert not (tmp_path / "out").exists(), "nothing is begun with a bad config"
    return lines[0]


BAD = [
    (["protocol.credit=4"], ["unknown key 'protocol.credit'", "did you mean 'protocol.credits'?"]),
    (
        [f"transport.{SOCKETS}.stream=4"],
        [f"transport.{SOCKETS}.stream", f"did you mean 'transport.{SOCKETS}.streams'?"],
    ),
    ([f"transport.{SOCKETS}x.bind=1"], [f"no transport '{SOCKETS}x'", f"did you mean '{SOCKETS}'?", " | ".join(NAMES)]),
    (["run.duration=10 parsecs"], ["run.duration = 10 parsecs", "not a duration", "1ms..2000h, or auto"]),
    (["protocol.mfp_size=64KiBit"], ["protocol.mfp_size = 64KiBit", "not a size", "32 B..1.0 GiB"]),
    (["source.trigger_rate=fast"], ["source.trigger_rate = fast", "not a frequency", "0 Hz.."]),
    (["run.nodes=0"], ["run.nodes = 0", "out of range", "1..4096"]),
    (["run.nodes=-1"], ["run.nodes = -1", "1..4096"]),
    (["run.nodes=1e3"], ["run.nodes = 1e3", "1..4096"]),
    (["run.nodes=99999999999999999999999"], ["run.nodes = 99999999999999999999999", "1..4096"]),
    (["protocol.credits=100000"], ["protocol.credits = 100000", "1..16384, or auto"]),
    (["protocol.views=true"], ["protocol.views = true", "protocol.scheme = pull-read"]),
    (["protocol.outstanding_writes=3"], ["protocol.outstanding_writes = 3", "protocol.ack_per_write = true"]),
    (["filter.accept=0.5"], ["filter.accept", "push-pull or pull-pull"]),
    (
        ["protocol.scheme=push-pull", "filter.kind=plugin", "filter.path=nowhere.so"],
        ["filter.path = nowhere.so", "no such file", "a shared object"],
    ),
    (["protocol.scheme=shove"], ["protocol.scheme = shove", "push | pull | push-pull | pull-pull | pull-read"]),
    (["run.respawn=perhaps"], ["run.respawn = perhaps", "true | false"]),
    (["source.policy=drop"], ["source.trigger_rate = 0", "closed loop", "a rate, or neither"]),
    (["source.trigger_steps=1kHz@1s"], ["source.trigger_rate = 0", "closed loop"]),
    (
        ["source.trigger_rate=1kHz", "source.trigger_steps=1kHz@2s,fast@3s"],
        ["source.trigger_steps = 1kHz@2s,fast@3s", "'fast@3s'", "RATE@TIME"],
    ),
    (["source.trigger_rate=1kHz", "source.trigger_steps=2kHz@2s,1kHz@1s"], ["1.00 s", "times that ascend"]),
    (["source.trigger_rate=1kHz", "source.trigger_steps=1e11Hz@2s"], ["source.trigger_steps = 1e11Hz@2s", "1e+10 Hz"]),
    (["source.trigger_rate=1e15Hz"], ["source.trigger_rate = 1e15Hz", "0 Hz..1e+10 Hz"]),
    (["source.trigger_rate=1GHz", "source.arrivals=poisson"], ["source.trigger_rate = 1e+09 Hz", "0 .. 1e+08 Hz"]),
    (["source.trigger_rate=nan"], ["source.trigger_rate = nan", "not a frequency"]),
    (["filter.accept=nan"], ["filter.accept = nan", "0..1"]),
    (["source.trigger_rate=40MHz", "source.arrivals=bunch-train"], ["4e+07 Hz", "filled bunches cross"]),
    (["source.arrivals=trace", "source.arrival_trace=/none"], ["source.arrival_trace = /none", "cannot be read"]),
    (
        ["source.size_distribution=histogram", "source.size_histogram=/none.toml"],
        ["source.size_histogram = /none.toml", "cannot be read"],
    ),
    (["source.size_correlation=2"], ["source.size_correlation = 2", "0..1"]),
    (["source.hot_factor=2", "source.hot_source=4"], ["source.hot_source = 4", "there are 4 sources", "0..3"]),
    (["sink.kind=command"], ["sink.command", "nothing to run"]),
    (["sink.fsync=sometimes"], ["sink.fsync = sometimes", "commit | interval | never"]),
    (["transport.name=carrier-pigeon"], ["transport.name = carrier-pigeon", " | ".join(NAMES)]),
    (["run.roles=split", "run.nodes=1"], ["run.nodes = 1", "2..4096"]),
    (
        ["run.roles=split", "run.readout_units=3", "run.builder_units=3"],
        ["run.readout_units + run.builder_units = 3 + 3", "run.nodes is 4"],
    ),
    (["run.readout_units=2"], ["run.readout_units = 2", "run.roles = split"]),
    (["protocol.slot_size=64KiB"], ["protocol.slot_size = 64.0 KiB (65536 B)", "an MFP of 63 events", "at least"]),
    (["source.memory=100KiB", "protocol.credits=8"], ["source.memory = 100.0 KiB (102400 B)", "EB-F1", "at least"]),
    (["source.memory=1MiB", "source.trigger_rate=100kHz"], ["source.memory", "open loop: 100000 Hz", "at least"]),
    (
        ["source.trigger_rate=1GHz", "protocol.packing=1"],
        ["protocol.packing", "would have to be kept", "at most 1048576"],
    ),
    (
        ["source.trigger_rate=200MHz", "protocol.mfp_size=1MiB"],
        ["source.memory", "more than this machine has", "at most"],
    ),
    (
        ["protocol.detection_deadline=300ms"],
        ["protocol.detection_deadline = 300ms", "protocol.heartbeat is 200ms", "at least 400ms"],
    ),
    (["protocol.schedule=shuffle"], ["protocol.schedule = shuffle", "barrel-barrier | barrel-time-slot | lockstep"]),
    (
        ["protocol.schedule=lockstep", "protocol.scheme=pull"],
        ["protocol.schedule = lockstep", "builder units pull", "linear-shift", "protocol.scheme = push"],
    ),
    (
        ["protocol.schedule=barrel-time-slot", "protocol.slot_time=1s"],
        ["protocol.late_after = 2s", "protocol.slot_time", "allowed: at least"],
    ),
    (["protocol.inter_send_gap=1s"], ["protocol.late_after = 2s", "protocol.inter_send_gap", "allowed: at least"]),
    (["source.sources_per_ru=60000"], ["source.sources_per_ru = 60000", "1..16383"]),
    (["sink.kind=mep"], ["sink.path", "a folder"]),
    (["source.kind=mfp"], ["source.path", "folder"]),
    (["source.kind=mfp", "source.path=/nonexistent/folder"], ["source.path = /nonexistent/folder"]),
    (
        [f"transport.name={SOCKETS}", f"transport.{SOCKETS}.streams=0"],
        [f"transport.{SOCKETS}.streams = 0: out of range; allowed: 1..64"],
    ),
    (
        [f"transport.name={SOCKETS}", f"transport.{SOCKETS}.bind=nowhere"],
        [f"transport.{SOCKETS}.bind = nowhere: no address; allowed: an IPv4 or IPv6 address"],
    ),
    (
        [f"transport.name={SIMULATED}", f"transport.{SIMULATED}.rate=very"],
        [f"transport.{SIMULATED}.rate = very: not a rate; allowed: 1 kB/s..100 TB/s"],
    ),
    (
        [f"transport.{SOCKETS}.staging=12Q"],
        [f"transport.{SOCKETS}.staging = 12Q: not a size; allowed: 8.0 KiB..16.0 MiB"],
    ),
    (
        [f"transport.{SHARED_MEMORY}.ring=20000"],
        [f"transport.{SHARED_MEMORY}.ring = 20000: no power of two; allowed: 16.0 KiB..16.0 MiB"],
    ),
    (
        [f"transport.name={SIMULATED}", f"transport.{SIMULATED}.fabric=/none.toml"],
        [f"transport.{SIMULATED}.fabric = /none.toml: cannot be read"],
    ),
    (
        ["protocol.scheme=pull-read", "protocol.message_size=64K"],
        ["protocol.message_size = 65536B: nothing is written with pull-read", "0, or another protocol.scheme"],
    ),
    (["net.pattern=ring"], ["net.pattern = ring", "one-to-one | many-to-one"]),
    (
        ["run.task=net", "net.buffers=one", "net.verify=true"],
        ["net.verify = true: with one buffer all messages have the same body", "allowed: false, or net.buffers = cycl"],
    ),
    (
        ["run.task=net", "net.buffers=one", "net.working_set=1MiB"],
        ["net.working_set = 1.0 MiB", "a sender has one message", "allowed: auto, or net.buffers = cycled"],
    ),
    (["net.queues=65"], ["net.queues = 65", "1..64"]),
    (["net.message_size=0"], ["net.message_size = 0", "1 B..512.0 MiB"]),
    (["run.task=net", "run.nodes=1"], ["run.nodes = 1", "2..4096"]),
    (["run.task=net", "net.pattern=one-to-one", "run.nodes=4"], ["run.nodes = 4", "two nodes", "allowed: 2"]),
    (["run.task=net", "net.pattern=pairs", "run.nodes=3"], ["run.nodes = 3", "even"]),
    (["run.task=net", "net.producers=2"], ["net.producers = 2", "net.pattern = bipartite"]),
    (
        ["run.task=net", "net.pattern=bipartite", "run.nodes=4", "net.producers=3", "net.consumers=2"],
        ["net.producers + net.consumers = 3 + 2", "run.nodes is 4"],
    ),
    (["run.task=net", "net.measure=latency", "net.outstanding=2"], ["net.outstanding = 2", "1 or auto"]),
    (["run.task=net", "net.queues=64", "net.outstanding=513"], ["net.outstanding = 513", "1..512"]),
    (["run.task=net", "net.working_set=1000GiB"], ["net.working_set = ", "more than this machine has"]),
    (["nonsense"], ["--set nonsense", "section.key=value"]),
]


@pytest.mark.parametrize(("settings", "parts"), BAD, ids=["+".join(settings) for settings, _ in BAD])
def test_bad_values(engine: Path, tmp_path: Path, settings: list[str], parts: list[str]) -> None:
    line = refusal(engine, tmp_path, *[word for setting in settings for word in ("--set", setting)])
    for part in parts:
        assert part in line, line


BAD_FILES = [
    ("[run]\nnodes = 'four'\n", ["run.nodes = four", "1..4096"]),
    (
        "[run]\nnodes = 4\n[protocol]\nshedule = 'random'\n",
        ["unknown key 'protocol.shedule'", "did you mean 'protocol.schedule'?"],
    ),
    ("[run]\nnodes = [1, 2]\n", ["run.nodes", "a list"]),
    ("[run\nnodes = 4\n", ["line 1", "not TOML"]),
    ("nodes = 4\n", ["unknown key 'nodes'", "did you mean 'run.nodes'?"]),
]


@pytest.mark.parametrize(("text", "parts"), BAD_FILES)
def test_bad_files(engine: Path, tmp_path: Path, text: str, parts: list[str]) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text)
    line = refusal(engine, tmp_path, str(config))
    for part in parts:
        assert part in line, line


def test_missing_file(engine: Path, tmp_path: Path) -> None:
    line = refusal(engine, tmp_path, str(tmp_path / "missing.toml"))
    assert "missing.toml" in line
    assert "cannot be read: No such file or directory" in line


def test_too_many_spawned(engine: Path, tmp_path: Path) -> None:
    line = refusal(engine, tmp_path, "--spawn", "9", "--set", f"transport.name={SOCKETS}")
    assert "--spawn 9" in line
    assert "0..4" in line


def test_bad_option(engine: Path, tmp_path: Path) -> None:
    assert "--shout" in refusal(engine, tmp_path, "--shout")
