"""Events in the memory of a GPU: over a driver of our own that uses the host's, and over that of a real device."""

import ctypes
import signal
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from consumer_support import SETTINGS
from incast.consumer import Consumer
from incast.gpu import ALIGNMENT, LIBRARY_VARIABLE, Gpu, GpuError, NoGpuError
from support import Start
from transports import SHARED_MEMORY

HERE = Path(__file__).parent
EVENTS = 50


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("cuda") / "libfake_cuda.so"
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(built)]
    subprocess.run([*command, str(HERE / "fake_cuda.c")], check=True, timeout=120)
    return built


@pytest.fixture
def driver(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """Ours, of which nothing is held in the end."""
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library))
    driver = ctypes.CDLL(str(library))
    yield driver
    assert driver.fake_cuda_kept() == 0


class Lent(bytearray):
    """Looks like an event: its buffer is the memory that is lent, in which its MFPs lie; None: a source is missing."""

    def __init__(self, memory: npt.NDArray[np.uint8], parts: list[slice | None]) -> None:
        super().__init__(memory.tobytes())
        self._parts = parts

    def mfps(self) -> list[tuple[int, npt.NDArray[np.uint8] | None]]:
        array = np.frombuffer(self, np.uint8)
        return [(number + 10, None if part is None else array[part]) for number, part in enumerate(self._parts)]


def memory_of(size: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, size, np.uint8)


def test_what_is_loaded_is_the_event_and_room_is_used_again(driver: ctypes.CDLL) -> None:
    memory = memory_of(10000)
    with Gpu() as gpu:
        assert gpu.name == "fake 0"
        for begin in range(0, 4000, 500):
            parts: list[slice | None] = [slice(begin, begin + 999), None, slice(begin + 1000, begin + 1001)]
            with gpu.load(Lent(memory, parts)) as packet:
                (_, first), (_, missing), (_, last) = packet.mfps()
                assert [source for source, _ in packet.mfps()] == [10, 11, 12]
                assert missing is None
                assert first is not None
                assert last is not None
                assert first.__cuda_array_interface__["shape"] == (999,)
                assert first.__cuda_array_interface__["data"] == (first.address, True)
                assert (first.address % ALIGNMENT, last.address % ALIGNMENT) == (0, 0)
                assert np.array_equal(first.to_host(), memory[begin : begin + 999])
                assert np.array_equal(last.to_host(), memory[begin + 1000 : begin + 1001])
        assert driver.fake_cuda_rooms() == 1
        assert gpu.unpinned == []


def test_packets_that_are_kept_have_room_of_their_own(driver: ctypes.CDLL) -> None:
    memory = memory_of(4096)
    with Gpu() as gpu:
        packets = [gpu.load(Lent(memory, [slice(at, at + 1024)])) for at in range(0, 4096, 1024)]
        for at, packet in zip(range(0, 4096, 1024), packets, strict=True):
            array = packet.mfps()[0][1]
            assert array is not None
            assert np.array_equal(array.to_host(), memory[at : at + 1024])
        del packet, array, packets
        gpu.load(Lent(memory, [slice(0, 1024)])).release()
        assert driver.fake_cuda_rooms() == 4


@pytest.mark.usefixtures("driver")
def test_memory_that_cannot_be_pinned_is_copied_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_PINS", "0")
    memory = memory_of(100)
    with Gpu() as gpu, gpu.load(Lent(memory, [slice(0, 100)])) as packet:
        array = packet.mfps()[0][1]
        assert array is not None
        assert np.array_equal(array.to_host(), memory)
        assert gpu.unpinned == ["cuMemHostRegister_v2: operation not supported"]


@pytest.mark.usefixtures("driver")
def test_pins_are_given_back_before_there_are_too_many() -> None:
    with Gpu() as gpu:
        for _ in range(200):
            gpu.load(Lent(memory_of(64), [slice(0, 64)])).release()
        assert gpu.unpinned == []


def test_what_is_not_there_is_said(driver: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoGpuError, match="no CUDA device 1: cuDeviceGet: invalid device ordinal"):
        Gpu(1)
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "0")
    with pytest.raises(NoGpuError, match="no CUDA device 0: cuInit: no CUDA-capable device is detected"):
        Gpu()
    monkeypatch.setenv(LIBRARY_VARIABLE, "libnosuch.so")
    with pytest.raises(NoGpuError, match=r"no driver of CUDA: libnosuch\.so"):
        Gpu()
    assert driver.fake_cuda_kept() == 0


def test_no_room_is_an_error_and_the_next_event_is_loaded(driver: ctypes.CDLL) -> None:
    memory = memory_of(64)
    with Gpu() as gpu:
        packets = [gpu.load(Lent(memory, [slice(0, 64)])) for _ in range(64)]
        with pytest.raises(GpuError, match="cuMemAlloc_v2: error 2"):
            gpu.load(Lent(memory, [slice(0, 64)]))
        packets.pop().release()
        gpu.load(Lent(memory, [slice(0, 64)])).release()
    assert driver.fake_cuda_kept() == 0
    del packets


def take(gpu: Gpu, start: Start, name: str) -> None:
    """Events of a run: each MFP on the device is that of the builder unit, and events are given back at once."""
    run = start({**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name, "run.nodes": 1})
    taken = 0
    with Consumer(name, timeout=60) as consumer:
        for event in consumer:
            sums = {source: None if mfp is None else zlib.crc32(mfp) for source, mfp in event.mfps()}
            packet = gpu.load(event)
            event.release()
            with packet:
                there = packet.mfps()
                assert sums == {
                    source: None if array is None else zlib.crc32(array.to_host()) for source, array in there
                }
            taken += 1
            if taken == EVENTS:
                run.process.send_signal(signal.SIGINT)
    assert run.finish(90) == 0, run.story()
    assert taken == run.result()["consumers"]["done_meps"] >= EVENTS
    assert gpu.unpinned == []


@pytest.mark.usefixtures("driver")
def test_events_of_a_run(start: Start, name: str) -> None:
    with Gpu() as gpu:
        take(gpu, start, name)


def test_events_of_a_run_on_a_real_device(start: Start, name: str) -> None:
    try:
        gpu = Gpu()
    except NoGpuError as error:
        pytest.skip(f"no GPU: {error}")
    with gpu:
        print(gpu.name)
        take(gpu, start, name)
