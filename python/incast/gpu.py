"""Copies of built events in the memory of a GPU, for farm nodes that process them there (docs/consumer.md).

    from incast.consumer import Consumer
    from incast.gpu import Gpu

    with Gpu() as gpu, Consumer("farm") as consumer:
        for event in consumer:
            with gpu.load(event) as packet:
                for source, mfp in packet.mfps():
                    view = cupy.asarray(mfp)  # or torch.as_tensor, numba.cuda.as_cuda_array; no further copy

Needs a driver of CUDA, `libcuda.so.1`, which is opened at run time; there is nothing to build or to link. The memory in
which a builder unit lends its events is pinned when its first event comes, so that the GPU fetches them itself.
"""

from __future__ import annotations

import ctypes
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

LIBRARY_VARIABLE: Final = "INCAST_CUDA_LIBRARY"

#: Where an MFP begins in the memory of the GPU: a multiple of this many bytes, as of what its driver allocates.
ALIGNMENT: Final = 256

_READ_ONLY: Final = 0x08  # CU_MEMHOSTREGISTER_READ_ONLY
_NON_BLOCKING: Final = 0x01  # CU_STREAM_NON_BLOCKING
_MOST_MEMORIES: Final = 64  # of builder units, dead ones among them


class GpuError(RuntimeError):
    """What the driver says; `status` is its CUresult."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class NoGpuError(GpuError):
    """There is no such device on this host, or no driver for it."""


class LentEvent(Protocol):
    """What is loaded: an `incast.consumer.Event`, whose buffer is all of the memory that its builder unit lends."""

    def mfps(self) -> list[tuple[int, npt.NDArray[np.uint8] | None]]: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...


class DeviceArray:
    """Bytes in the memory of a GPU; good until its packet is released."""

    __slots__ = ("_gpu", "address", "size")

    def __init__(self, gpu: Gpu, address: int, size: int) -> None:
        self._gpu = gpu
        self.address = address
        self.size = size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """By which cupy, PyTorch and Numba see it in place (version 3 of that interface)."""
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, True), "version": 3, "strides": None}

    def to_host(self) -> npt.NDArray[np.uint8]:
        """A copy in host memory."""
        array = np.empty(self.size, np.uint8)
        self._gpu.call("cuMemcpyDtoH_v2", array.ctypes.data, self.address, self.size)
        return array


class Packet:
    """An event in the memory of a GPU. Its room there is used again once it is released, or dropped."""

    def __init__(self, gpu: Gpu, room: tuple[int, int], arrays: list[tuple[int, DeviceArray | None]]) -> None:
        self._gpu = gpu
        self._room: tuple[int, int] | None = room
        self._arrays = arrays

    def mfps(self) -> list[tuple[int, DeviceArray | None]]:
        """Each source with its MFP; None if there is none."""
        return self._arrays

    def release(self) -> None:
        """Kernels that read it have to be done."""
        if self._room is not None:
            self._gpu.give_back(self._room)
            self._room = None

    def __enter__(self) -> Packet:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


def _open_driver() -> ctypes.CDLL:
    name = os.environ.get(LIBRARY_VARIABLE, "libcuda.so.1")
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise NoGpuError(f"no driver of CUDA: {error}") from None


class Gpu:
    """One device, by its number. Of one thread."""

    def __init__(self, device: int = 0) -> None:
        """Raises NoGpuError where there is none."""
        self._driver = _open_driver()
        self._free: list[tuple[int, int]] = []
        self._lent: set[tuple[int, int]] = set()
        # The memory of builder units by its address, the last used one last, and why it is not pinned. It is kept, as
        # it must stay mapped while it is pinned.
        self._memory: OrderedDict[int, tuple[npt.NDArray[np.uint8], str | None]] = OrderedDict()
        self._stream = ctypes.c_void_p()
        self._device = ctypes.c_int()
        self._closed = True
        try:
            self.call("cuInit", 0)
            self.call("cuDeviceGet", ctypes.byref(self._device), device)
        except GpuError as error:
            raise NoGpuError(f"no CUDA device {device}: {error}", error.status) from None
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._closed = False
        self.call("cuCtxSetCurrent", context)
        # Does not wait for the default stream, so kernels of one packet run while the next one is loaded.
        self.call("cuStreamCreate", ctypes.byref(self._stream), _NON_BLOCKING)

    @property
    def name(self) -> str:
        """As its maker calls it."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), self._device)
        return text.value.decode(errors="replace")

    @property
    def unpinned(self) -> list[str]:
        """Why memory of builder units is not pinned. Its events are loaded all the same, but more slowly."""
        return [why for _, why in self._memory.values() if why is not None]

    def load(self, event: LentEvent) -> Packet:
        """Copies all MFPs of an event to the device, and returns once they are there: the event may be given back."""
        self._pin(event)
        found = event.mfps()
        offsets, end = [], 0
        for _, mfp in found:
            offsets.append(end)
            if mfp is not None:
                end += -(-mfp.size // ALIGNMENT) * ALIGNMENT
        room = self._take(end)
        arrays: list[tuple[int, DeviceArray | None]] = []
        try:
            for (source, mfp), offset in zip(found, offsets, strict=True):
                if mfp is None:
                    arrays.append((source, None))
                    continue
                address = room[0] + offset
                self.call("cuMemcpyHtoDAsync_v2", address, mfp.ctypes.data, mfp.size, self._stream)
                arrays.append((source, DeviceArray(self, address, mfp.size)))
        except GpuError:
            self.call("cuStreamSynchronize", self._stream)
            self.give_back(room)
            raise
        self.call("cuStreamSynchronize", self._stream)
        return Packet(self, room, arrays)

    def give_back(self, room: tuple[int, int]) -> None:
        """As `Packet.release`."""
        if room in self._lent:
            self._lent.remove(room)
            self._free.append(room)

    def close(self) -> None:
        """Gives back all memory. No array may be used after that."""
        if self._closed:
            return
        self._closed = True
        for address, _ in [*self._free, *self._lent]:
            self.call("cuMemFree_v2", address)
        self._free.clear()
        self._lent.clear()
        for base in list(self._memory):
            self._unpin(base)
        if self._stream:
            self.call("cuStreamDestroy_v2", self._stream)
        self.call("cuDevicePrimaryCtxRelease_v2", self._device)

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, name: str, *words: Any) -> None:
        """One function of the driver. Integers that are addresses or sizes have 64 bits there."""
        try:
            function: Callable[..., int] = getattr(self._driver, name)
        except AttributeError:
            raise GpuError(f"this driver of CUDA has no {name}") from None
        status = function(*(ctypes.c_size_t(word) if isinstance(word, int) else word for word in words))
        if status != 0:
            raise GpuError(f"{name}: {self._text(status)}", status)

    def _text(self, status: int) -> str:
        text = ctypes.c_char_p()
        said = self._driver.cuGetErrorString(status, ctypes.byref(text)) == 0 and text.value
        return said.decode() if said else f"error {status}"

    def _pin(self, event: LentEvent) -> None:
        memory = np.frombuffer(memoryview(event), np.uint8)
        base = memory.ctypes.data
        if base in self._memory:
            self._memory.move_to_end(base)
            return
        if len(self._memory) == _MOST_MEMORIES:
            self._unpin(next(iter(self._memory)))
        try:
            self.call("cuMemHostRegister_v2", base, memory.size, _READ_ONLY)
            self._memory[base] = (memory, None)
        except GpuError as error:
            self._memory[base] = (memory, str(error))

    def _unpin(self, base: int) -> None:
        _, why = self._memory.pop(base)
        if why is None:
            self.call("cuMemHostUnregister", base)

    def _take(self, bytes_wanted: int) -> tuple[int, int]:
        """Room for an event: address and size. What is free and large enough, or new room."""
        for room in self._free:
            if room[1] >= bytes_wanted:
                self._free.remove(room)
                self._lent.add(room)
                return room
        # Packets of a run are of much the same size: a quarter more, and few rooms are ever made.
        size = max(ALIGNMENT, bytes_wanted + bytes_wanted // 4)
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        room = (address.value, size)
        self._lent.add(room)
        return room
