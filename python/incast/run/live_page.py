"""The live page of a run: `incast run --web` (docs/running.md, "In a browser").

A page, its script and its style, and the events they draw, as server-sent events: `state` with everything so far, then
`sample`, `notice`, and `end`. All by the standard library: the engine's reports are appended to a short list, and a
thread for each client sends them on, so nobody who reads slowly holds up the run.
"""

import json
import socket
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from incast.base.errors import OneLineError
from incast.engine.progress import Notice, Phase, Progress, Sample
from incast.run.live import RunState

DEFAULT_ADDRESS = "127.0.0.1:0"
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
}
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'"
_SAMPLES_MAX = 2000  # as the page: beyond, every second one goes
_VALUES_MAX = 50_000  # of all nodes in all samples
_NOTICES_MAX = 200
_RECENT_MAX = 256  # events; a client that is further behind gets everything anew
_CLIENTS_MAX = 32
_CLIENT_TIMEOUT_S = 10.0  # for a request, and for each piece of an answer to be taken
_KEEP_ALIVE_S = 5.0
_FAREWELL_S = 2.0  # for clients to take the last events
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _event(kind: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


class Feed:
    """What has happened so far and what happens now, for any number of readers. Bounded, whatever the run's length."""

    def __init__(self, title: str, *, virtual: bool) -> None:
        self._changed = threading.Condition()
        self._title = title
        self._virtual = virtual
        self._state = RunState()
        self._samples: list[dict[str, Any]] = []
        self._notices: deque[dict[str, Any]] = deque(maxlen=_NOTICES_MAX)
        self._recent: deque[bytes] = deque(maxlen=_RECENT_MAX)
        self._count = 0  # of all events ever
        self.ended = False

    def on_progress(self, progress: Progress) -> None:
        """Takes one report of the engine."""
        with self._changed:
            match progress:
                case Phase():
                    self._state.take(progress)
                case Sample():
                    self._state.take(progress)
                    self._samples.append(sample := self._shown(progress))
                    if len(self._samples) > min(_SAMPLES_MAX, _VALUES_MAX // max(len(sample["nodes"]), 1)):
                        del self._samples[::2]
                    self._add(_event("sample", sample))
                case Notice():
                    self._notices.append(notice := asdict(progress))
                    self._add(_event("notice", notice))
                case _:
                    pass

    def end(self, text: str) -> None:
        """The last event."""
        with self._changed:
            self.ended = True
            self._add(_event("end", {"text": text}))

    def _add(self, event: bytes) -> None:
        self._recent.append(event)
        self._count += 1
        self._changed.notify_all()

    def _shown(self, sample: Sample) -> dict[str, Any]:
        figures = {key: value for key, value in asdict(sample).items() if key not in ("t_s", "nodes")}
        nodes = [
            {"name": node.name, "state": node.state, "built": node.built_bytes_per_s, "sent": node.sent_bytes_per_s}
            for node in self._state.nodes
        ]
        return {"t": sample.t_s, "phase": self._state.phase, **figures, "nodes": nodes}

    def everything(self) -> tuple[bytes, int]:
        """The event that holds all so far, and where to go on."""
        with self._changed:
            state = {
                "title": self._title,
                "virtual": self._virtual,
                "samples": self._samples,
                "notices": list(self._notices),
            }
            return _event("state", state), self._count

    def after(self, position: int, timeout_s: float) -> tuple[bytes, int] | None:
        """What came since, perhaps nothing within the time; None: so much that some of it is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > position or self.ended, timeout_s)
            missed = self._count - position
            if missed > len(self._recent):
                return None
            return b"".join(list(self._recent)[len(self._recent) - missed :]), self._count


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], feed: Feed) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.feed = feed
        self.name = address[0]
        self._clients: list[tuple[str, Any]] = []  # host and socket, in the order in which they came
        self._clients_lock = threading.Lock()
        self._readers = 0
        self._readers_changed = threading.Condition()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._clients_lock:
            if len(self._clients) >= _CLIENTS_MAX:
                self._make_room()
            self._clients.append((str(client_address[0]), request))
        super().process_request(request, client_address)

    def _make_room(self) -> None:
        """The oldest client goes, of the host that has most; a browser that is still there comes back by itself."""
        crowds = Counter(host for host, _ in self._clients)
        victim = max(range(len(self._clients)), key=lambda index: (crowds[self._clients[index][0]], -index))
        _, request = self._clients.pop(victim)
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)  # its thread closes it

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._clients_lock:
                self._clients = [client for client in self._clients if client[1] is not request]

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Someone who takes events, as long as that lasts."""
        with self._readers_changed:
            self._readers += 1
        try:
            yield
        finally:
            with self._readers_changed:
                self._readers -= 1
                self._readers_changed.notify_all()

    def wait_for_readers(self, timeout_s: float) -> None:
        """Until nobody takes events any more."""
        with self._readers_changed:
            self._readers_changed.wait_for(lambda: self._readers == 0, timeout_s)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """The terminal is the run's."""

    def do_GET(self) -> None:
        """The page, its parts, and its events."""
        if not self._is_called(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/events":
            self._stream()
        elif self.path in _FILES:
            name, kind = _FILES[self.path]
            self._begin(kind, (content := (Path(__file__).parent / "live_page" / name).read_bytes()))
            self.wfile.write(content)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _is_called(self, host: str) -> bool:
        """A page of elsewhere whose name was made to mean this host shall not read along."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ip_address(name)
        except ValueError:
            return name in ("localhost", self.server.name.lower(), socket.gethostname().lower())
        # Who serves its own host alone is asked for by no other address.
        return name in _LOOPBACK or str(self.server.server_address[0]) not in _LOOPBACK

    def _begin(self, kind: str, content: bytes | None) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        if content is None:
            self.close_connection = True
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()

    def _stream(self) -> None:
        self._begin("text/event-stream", None)
        feed = self.server.feed
        with self.server.reader():
            events, position = feed.everything()
            self.wfile.write(events)
            while True:
                ended = feed.ended
                if (more := feed.after(position, _KEEP_ALIVE_S)) is None:
                    more = feed.everything()
                events, position = more
                # A comment shows whether the client is still there.
                self.wfile.write(events or b": nothing new\n\n")
                if ended:
                    return


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[::1]:PORT`; port 0: the kernel chooses."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise OneLineError(f"--web-listen {text}: no address; allowed: HOST:PORT", 2)
    return host.strip("[]"), int(port)


class LivePage:
    """Serves the page between `__enter__` and `__exit__`. Anyone who can reach the address can look, and only look."""

    def __init__(self, address: str, title: str, *, virtual: bool) -> None:
        self.feed = Feed(title, virtual=virtual)
        host, port = parse_address(address)
        try:
            try:
                self._server = _Server((host, port), self.feed)
            except OSError:
                if address != DEFAULT_ADDRESS:
                    raise
                self._server = _Server(("::1", 0), self.feed)  # a host without IPv4
        except OSError as error:
            raise OneLineError(f"--web-listen {address}: {error.strerror or error}; allowed: HOST:PORT", 2) from error
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    @property
    def url(self) -> str:
        """Where to look."""
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}/" if ":" in str(host) else f"http://{host!s}:{port}/"

    def __enter__(self) -> "LivePage":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.feed.ended:
            self.feed.end("the run has ended without a result")
        self._server.wait_for_readers(_FAREWELL_S)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
