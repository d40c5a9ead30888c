"""Copies random bytes over TCP there and back, and says their digest at both ends.

usage: copy_file.py serve ADDRESS PORT            once, and ends
       copy_file.py ask ADDRESS PORT BYTES        1: what came back was another
"""

import hashlib
import os
import socket
import sys
import threading
import time

SILENCE_S = 60.0  # no wait is longer


def receive(connection: socket.socket) -> bytes:
    """Until the other side has sent all."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def say(data: bytes, what: str) -> None:
    print(hashlib.sha256(data).hexdigest(), what, len(data), flush=True)


def serve(place: tuple[str, int]) -> int:
    with socket.create_server(place) as listener:
        listener.settimeout(SILENCE_S)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(SILENCE_S)
            data = receive(connection)
            say(data, "served")
            connection.sendall(data)
    return 0


def connect(place: tuple[str, int]) -> socket.socket:
    end = time.monotonic() + SILENCE_S
    pause = threading.Event()
    while True:
        try:
            return socket.create_connection(place, timeout=SILENCE_S)
        except OSError:
            if time.monotonic() > end:
                raise
            pause.wait(0.2)


def ask(place: tuple[str, int], count: int) -> int:
    data = os.urandom(count)
    with connect(place) as connection:
        begin = time.monotonic()
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        back = receive(connection)
        took = time.monotonic() - begin
    say(data, "sent")
    say(back, "back")
    print(f"{2 * count / took / 1e6:.2f} MB/s there and back")
    return int(back != data)


def main(words: list[str]) -> int:
    """The command line of this program."""
    place = (words[1], int(words[2]))
    return serve(place) if words[0] == "serve" else ask(place, int(words[3]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
