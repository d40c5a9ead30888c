"""A node that lies: a real one behind a proxy that knows the token, and adds frames of its own to what the node says.

The node has the highest index, so all others dial it: its address is the only thing that the proxy changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

FRAME = struct.Struct("<BBHIIIHHIQ")  # kind, 0, notice, length, sequence, generation, region, 0, tag, offset
MESSAGE, WRITE, WRITE_NOTICE, READ_REPLY = 1, 2, 3, 5
HELLO_BYTES, ANSWER_BYTES, HEADER_BYTES = 64, 16, 24
PORT_AT = 10  # in the bytes of an address
MAGIC = 0x1CA5
PEER_LOST, GRANT, ASSIGN, COMMIT_REQUEST, LATE = 4, 10, 11, 12, 15
ATTEMPT = struct.Struct("<QIHHHHI")


def exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = stream.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError
        data += chunk
    return data


def as_frame(message: dict[str, Any]) -> bytes:
    """Of the rendezvous."""
    text = json.dumps(message).encode()
    return struct.pack("<I", len(text)) + text


class Line:
    """What the liar says to one peer: true frames and false ones, numbered as one sequence."""

    def __init__(self, out: socket.socket) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._added = 0
        self._next = 0
        self.header = b""  # of a control message
        self.write: tuple[int, int, int] | None = None  # generation, region and offset of the last
        self.damaged = 0  # writes
        self.damages = False
        self.withheld: tuple[int, ...] = ()  # kinds of control messages that do not get through

    def true(self, frame: tuple[int, ...], body: bytes) -> None:
        kind, _, notice, length, sequence, generation, region, _, tag, offset = frame
        if kind in (WRITE, WRITE_NOTICE):
            self.write = (generation, region, offset)
            if self.damages:
                self.damaged += 1
                body = body[:-1] + bytes([body[-1] ^ 0x10])
        with self._lock:
            if kind == MESSAGE and struct.unpack_from("<H", body)[0] == MAGIC:
                self.header = body[:HEADER_BYTES]
                if body[3] in self.withheld:
                    self._added -= 1
                    return
            self._next = sequence + self._added + 1 & 0xFFFFFFFF
            number = sequence + self._added & 0xFFFFFFFF
            self._out.sendall(FRAME.pack(kind, 0, notice, length, number, generation, region, 0, tag, offset) + body)

    def false(self, kind: int, body: bytes, generation: int = 0, region: int = 0, offset: int = 0) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._out.sendall(FRAME.pack(kind, 0, 0, len(body), self._next, generation, region, 0, 0, offset) + body)
            self._added += 1
            self._next = self._next + 1 & 0xFFFFFFFF

    def say(self, kind: int, body: bytes = b"", entries: tuple[bytes, ...] = ()) -> None:
        """A control message."""
        if self.header:
            header = bytearray(self.header)
            header[3] = kind
            struct.pack_into("<I", header, 20, len(entries))
            self.false(MESSAGE, bytes(header) + body + b"".join(entries))


class Liar:
    """Joins a run as its last node. `told` is called with each assignment that the node gets."""

    def __init__(self, engine: Path, address: str, token: str, node: int, output: Path) -> None:
        self.node = node
        self.lines: dict[int, Line] = {}
        self.told: Callable[[bytes], None] = lambda _: None
        host, port = address.rsplit(":", 1)
        self._coordinator = (host, int(port))
        self._real: tuple[str, int] | None = None
        self._told_lock = threading.Lock()
        self._to_coordinator: socket.socket | None = None
        self._sockets: list[socket.socket] = []
        self._rendezvous = self._listen(self._meet)
        self._endpoint = self._listen(self._connect)
        command = [str(engine), "--join", f"127.0.0.1:{self._rendezvous}", "--node", str(node), "--output", str(output)]
        self.process = subprocess.Popen(
            command, env={**os.environ, "INCAST_TOKEN": token}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _keep(self, one: socket.socket) -> socket.socket:
        self._sockets.append(one)
        return one

    def _listen(self, serve: Callable[[socket.socket], None]) -> int:
        listener = self._keep(socket.create_server(("127.0.0.1", 0)))

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = self._keep(listener.accept()[0])
                    self._begin(serve, client)

        self._begin(accept)
        return int(listener.getsockname()[1])

    @staticmethod
    def _begin(work: Callable[..., None], *arguments: Any) -> None:
        def guarded() -> None:
            with contextlib.suppress(OSError):
                work(*arguments)

        threading.Thread(target=guarded, daemon=True).start()

    # --- the rendezvous

    def tell(self, data: bytes) -> None:
        """To the coordinator, between two true messages."""
        assert self._to_coordinator is not None
        with self._told_lock, contextlib.suppress(OSError):
            self._to_coordinator.sendall(data)

    def _meet(self, client: socket.socket) -> None:
        server = self._to_coordinator = self._keep(socket.create_connection(self._coordinator))
        self._begin(self._relay, server, client, client.sendall)
        self._relay(client, server, lambda text: self.tell(self._advertise(text)))

    @staticmethod
    def _relay(source: socket.socket, out: socket.socket, deliver: Callable[[bytes], None]) -> None:
        try:
            while True:
                size = exactly(source, 4)
                deliver(size + exactly(source, struct.unpack("<I", size)[0]))
        finally:
            for each in (source, out):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _advertise(self, text: bytes) -> bytes:
        message = json.loads(text[4:])
        if message["type"] == "address":
            address = bytearray(bytes.fromhex(message["address"]))
            self._real = ("127.0.0.1", struct.unpack_from("<H", address, PORT_AT)[0])
            struct.pack_into("<H", address, PORT_AT, self._endpoint)
            message["address"] = address.hex()
        return as_frame(message)

    # --- connections of the endpoint

    def _connect(self, client: socket.socket) -> None:
        assert self._real is not None
        server = self._keep(socket.create_connection(self._real))
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = exactly(client, HELLO_BYTES)
        server.sendall(hello)
        client.sendall(exactly(server, ANSWER_BYTES))
        line = self.lines[struct.unpack_from("<I", hello, 40)[0]] = Line(client)
        self._begin(self._pump, client, lambda frame, body: self._hear(server, frame, body))
        self._pump(server, line.true)

    @staticmethod
    def _pump(source: socket.socket, deliver: Callable[[tuple[int, ...], bytes], None]) -> None:
        try:
            while True:
                frame = FRAME.unpack(exactly(source, FRAME.size))
                carries = frame[0] in (MESSAGE, WRITE, WRITE_NOTICE, READ_REPLY)
                deliver(frame, exactly(source, frame[3]) if carries else b"")
        finally:
            with contextlib.suppress(OSError):
                source.shutdown(socket.SHUT_RDWR)

    def _hear(self, server: socket.socket, frame: tuple[int, ...], body: bytes) -> None:
        if frame[0] == MESSAGE and struct.unpack_from("<H", body)[0] == MAGIC and body[3] == ASSIGN:
            for at in range(HEADER_BYTES, len(body), ATTEMPT.size):
                self.told(body[at : at + ATTEMPT.size])
        server.sendall(FRAME.pack(*frame) + body)
