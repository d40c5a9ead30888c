"""The live page's server: what it serves to whom, and that nobody who reads slowly holds up the run."""

import http.client
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from incast.base.errors import OneLineError
from incast.engine.progress import NodeSample, Notice, Phase, Sample
from incast.figures.style import DARK, LIGHT
from incast.run import live_page
from incast.run.live_page import Feed, LivePage, parse_address

from tests.conftest import DEADLINE_S, Incast, wait_for_line
from tests.lab.conftest import InProcess

FILES = Path(live_page.__file__).parent / "live_page"


def sample(t: float, nodes: int = 2) -> Sample:
    built = int(1e9 * t)
    return Sample(t, 2e9, 100.0, tuple(NodeSample(f"{n} (BU)", "running", built, 0) for n in range(nodes)), 5e5, 1)


@pytest.fixture
def page() -> Iterator[LivePage]:
    with LivePage("127.0.0.1:0", "a <run>", virtual=False) as served:
        yield served
        served.feed.end("over")


def connect(page: LivePage) -> http.client.HTTPConnection:
    host, port = page.url.removeprefix("http://").strip("/").split(":")
    return http.client.HTTPConnection(host, int(port), timeout=DEADLINE_S)


def get(page: LivePage, path: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    connection = connect(page)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, answer.msg


def events(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    """Kind and data of each event until the end of the stream."""
    kind = ""
    while line := response.readline().decode().rstrip("\n") or (not response.isclosed() and " "):
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))
            if kind == "end":
                return


def test_everything_so_far_then_what_comes(page: LivePage) -> None:
    for report in (Phase("measuring"), sample(1.0), Notice("warning", "a node is slow"), sample(2.0)):
        page.feed.on_progress(report)
    connection = connect(page)
    connection.request("GET", "/events")
    stream = events(connection.getresponse())
    kind, state = next(stream)
    assert kind == "state"
    assert state["title"] == "a <run>"
    assert [one["t"] for one in state["samples"]] == [1.0, 2.0]
    assert state["samples"][1]["nodes"][0] == {"name": "0 (BU)", "state": "running", "built": 1e9, "sent": 0.0}
    assert state["samples"][1]["latency_mean_ns"] == 5e5
    assert state["samples"][1]["incomplete_events"] == 1
    assert state["notices"] == [{"level": "warning", "text": "a node is slow"}]
    page.feed.on_progress(sample(3.0))
    kind, data = next(stream)
    assert (kind, data["t"], data["phase"]) == ("sample", 3.0, "measuring")
    page.feed.end("all is over")
    assert next(stream) == ("end", {"text": "all is over"})
    connection.close()


def test_only_the_page_and_its_parts(page: LivePage) -> None:
    for path, name in (("/", "page.html"), ("/live.js", "live.js"), ("/live.css", "live.css")):
        status, body, headers = get(page, path)
        assert (status, body) == (200, (FILES / name).read_text())
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert get(page, "/../live_page.py")[0] == 404
    assert get(page, "/favicon.ico")[0] == 404


def test_a_foreign_name_for_this_host_is_refused(page: LivePage) -> None:
    assert get(page, "/", Host="evil.example")[0] == 403
    assert get(page, "/", Host="localhost:1")[0] == 200


def test_whoever_is_far_behind_gets_everything_anew() -> None:
    feed = Feed("run", virtual=True)
    _, position = feed.everything()
    feed.on_progress(sample(1.0))
    more = feed.after(position, 0)
    assert more is not None
    assert more[0].startswith(b"event: sample\n")
    for k in range(live_page._RECENT_MAX + 1):
        feed.on_progress(Notice("info", str(k)))
    assert feed.after(position, 0) is None


@pytest.mark.parametrize("nodes", [1, 500])
def test_memory_is_bounded(nodes: int) -> None:
    feed = Feed("run", virtual=False)
    most = min(live_page._SAMPLES_MAX, live_page._VALUES_MAX // nodes)
    for k in range(most * 3):
        feed.on_progress(sample(float(k), nodes if k > most * 3 - 3 else 1))
    state = json.loads(feed.everything()[0].decode().splitlines()[1].removeprefix("data: "))
    times = [one["t"] for one in state["samples"]]
    assert len(times) <= live_page._SAMPLES_MAX
    assert times == sorted(times)
    assert times[-1] == most * 3 - 1


def test_for_a_client_too_many_the_oldest_makes_room(page: LivePage) -> None:
    connections = []
    streams = []
    for _ in range(live_page._CLIENTS_MAX):
        connections.append(connect(page))
        connections[-1].request("GET", "/events")
        streams.append(connections[-1].getresponse())
        assert streams[-1].status == 200
        assert streams[-1].readline() == b"event: state\n"
    assert get(page, "/")[0] == 200
    page.feed.end("over")
    kinds = [b"event: end\n" in stream.read() for stream in streams]
    assert kinds == [False] + [True] * (live_page._CLIENTS_MAX - 1)
    for connection in connections:
        connection.close()


def test_silent_clients_keep_nobody_out(page: LivePage) -> None:
    silent = [connect(page) for _ in range(3 * live_page._CLIENTS_MAX)]
    for connection in silent:
        connection.connect()
    assert get(page, "/")[0] == 200
    for connection in silent:
        connection.close()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:0"])
def test_only_addresses_and_own_names(address: str) -> None:
    with LivePage(address, "run", virtual=False) as page:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1", ""):
            assert get(page, "/", Host=host)[0] == 403, host
        for host in ("localhost", "127.0.0.1:5", "[::1]:80", "LOCALHOST:1"):
            assert get(page, "/", Host=host)[0] == 200, host
        assert get(page, "/", Host="192.0.2.1:80")[0] == (200 if address.startswith("0") else 403)


def test_addresses() -> None:
    assert parse_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_address("[::1]:0") == ("::1", 0)
    for wrong in ("8080", "host:", ":80", "host:99999", "host:http"):
        with pytest.raises(OneLineError, match=re.escape(f"--web-listen {wrong}: no address; allowed: HOST:PORT")):
            parse_address(wrong)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OneLineError, match=f"--web-listen {address}: .*in use"):
            LivePage(address, "run", virtual=False)


def test_the_page_has_the_colours_of_the_report() -> None:
    style = (FILES / "live.css").read_text()
    light, dark = style.split("@media", 1)
    for index, colour in enumerate(LIGHT.series):
        assert f"--s{index}: {colour};" in light
    assert f"--s0: {DARK.series[0]};" in dark
    for theme, text in ((LIGHT, light), (DARK, dark)):
        for name in ("text", "muted", "grid", "background"):
            assert f"--{name}: {getattr(theme, name)};" in text


def test_the_command_says_where_it_is(incast: Incast) -> None:
    run = subprocess.Popen(
        incast.command("run", "--web", "--duration", "1h"),
        cwd=incast.folder,
        env=incast.full_environment("drain"),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = wait_for_line("live page: http://127.0.0.1:", run)
        url = re.search(r"http://127.0.0.1:(\d+)/", said)
        assert url is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(url[1]), timeout=DEADLINE_S)
        connection.request("GET", "/events")
        stream = events(connection.getresponse())
        # Once it has sent a sample, the engine hears signals.
        next(kind for kind, data in stream if kind == "sample" or data.get("samples"))
        run.send_signal(2)
        kinds = dict(stream)
        assert kinds["end"]["text"].startswith("ended: ")
    finally:
        run.kill()
        run.communicate()


def test_a_wrong_address_ends_the_command(fake: InProcess) -> None:
    said = fake("run", "--web-listen", "nowhere")
    assert said.returncode == 2
    assert said.stderr == "incast: --web-listen nowhere: no address; allowed: HOST:PORT\n"
