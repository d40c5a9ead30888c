"""What nodes tell Prometheus: the documented series and no other, from every node, and a run that does not notice."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Run, Start, wait_until
from transports import ONE_THREAD, SIMULATED, SOCKETS

SETTINGS = {
    "transport.name": SOCKETS,
    "run.nodes": 3,
    "run.warm_up": "50ms",
    "run.duration": "1h",
    "run.sample_interval": "50ms",
    "run.metrics": "127.0.0.1:0",
    "run.fail_above_incomplete": 1,
    "protocol.mfp_size": "16KiB",
    "source.prefill_size": "256KiB",
}
DASHBOARD = ROOT / "docs" / "grafana-dashboard.json"
Family = tuple[str, str]  # type, help


def documented() -> dict[str, Family]:
    """The table of docs/metrics.md."""
    rows = re.findall(r"^\| `(incast_\w+)` \| (\w+) \| (.*) \|$", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    return {name: (kind, words) for name, kind, words in rows}


def exposed(text: str) -> dict[str, Family]:
    helps = dict(re.findall(r"^# HELP (\w+) (.*)\.$", text, re.MULTILINE))
    return {name: (kind, helps[name]) for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)}


def addresses(run: Run, nodes: int) -> list[str]:
    """Where to scrape, from what Prometheus reads."""
    targets: list[str] = []

    def all_known() -> bool:
        targets[:] = json.loads((run.output / "metrics.json").read_text())[0]["targets"]
        return len(targets) == nodes

    run.wait_for_phase("measuring")
    wait_until(all_known, "all addresses")
    return targets


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


def value(text: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    assert found is not None, f"no {series}"
    return float(found[1])


def stop(run: Run) -> None:
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.story()


def test_every_node_has_the_documented_series(start: Start) -> None:
    run = start({**SETTINGS, "run.respawn": "true", "protocol.detection_deadline": "500ms"})
    found = addresses(run, 3)
    assert all(f"metrics at http://{address}/metrics" in run.story() for address in found)
    for node, address in enumerate(found):
        text = scrape(address)
        assert exposed(text) == documented()
        assert set(re.findall(r'node="(\d+)"', text)) == {str(node)}
    built = 'incast_meps_built_total{node="1"}'
    before = value(scrape(found[1]), built)
    wait_until(lambda: value(scrape(found[1]), built) > before, "more MEPs")
    assert value(scrape(found[0]), 'incast_node_state{node="0",state="running"}') == 1

    # A node that comes back is found at its new address.
    os.kill(run.node_pid(2), signal.SIGKILL)
    wait_until(lambda: addresses_now(run)[2] != found[2], "another address of node 2")
    assert exposed(scrape(addresses_now(run)[2])) == documented()
    stop(run)


def addresses_now(run: Run) -> list[str]:
    listed: list[str] = json.loads((run.output / "metrics.json").read_text())[0]["targets"]
    return listed


def test_nodes_of_one_process_share_an_address(start: Start) -> None:
    run = start({**SETTINGS, "transport.name": ONE_THREAD})
    (address,) = addresses(run, 1)
    text = scrape(address)
    assert exposed(text) == documented()
    assert set(re.findall(r'node="(\d+)"', text)) == {"0", "1", "2"}
    stop(run)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"run.metrics": "host:port"}, "run.metrics = host:port: no address; allowed: off, or HOST:PORT"),
        (
            {"run.metrics": "10.0.0.1:65535"},
            "run.metrics = 10.0.0.1:65535: node 2 would listen on port 65537; allowed: up to 65535, or 0",
        ),
        (
            {"transport.name": SIMULATED},
            "run.metrics = 127.0.0.1:0: nobody can scrape virtual time; allowed: off",
        ),
    ],
)
def test_what_cannot_be_is_refused(start: Start, settings: dict[str, str], line: str) -> None:
    run = start({**SETTINGS, **settings})
    assert run.finish() == 2
    assert run.errors == [f"incast-node: {line}"]


def test_a_port_that_is_taken_ends_the_run_before_it_begins(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = start({**SETTINGS, "run.nodes": 1, "run.metrics": f"127.0.0.1:{port}"})
        assert run.finish() == 2
    (said,) = run.errors
    assert said == (
        f"incast-node: run.metrics = 127.0.0.1:{port}: node 0: cannot listen on 127.0.0.1:{port}: "
        "Address already in use; allowed: an address of this host, with ports that are free for all of its nodes"
    )
    assert run.reports == []
    assert not run.output.exists()


def test_promtool_finds_nothing_to_say(start: Start) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on this host (Debian package prometheus; tools/setup.sh, purpose web)")
    run = start(SETTINGS)
    text = scrape(addresses(run, 3)[0])
    stop(run)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def dashboard_expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_dashboard_asks_for_documented_series() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    known = documented()
    summary = {f"{name}{part}" for name, (kind, _) in known.items() if kind == "summary" for part in ("_sum", "_count")}
    expressions = dashboard_expressions()
    assert len(expressions) > 10
    for expression in expressions:
        names = set(re.findall(r"\bincast_\w+", expression)) - {"incast_run"}
        assert names
        assert names <= set(known) | summary, expression
        # A counter alone says nothing; a gauge has no rate.
        counters = {name for name in names if name.endswith(("_total", "_sum", "_count"))}
        assert bool(counters) == ("rate(" in expression or "increase(" in expression), expression
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels if panel["type"] == "timeseries")
    boxes = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(boxes)) == len(boxes)


class Prometheus:
    """A real one, that watches the folder of a run."""

    def __init__(self, folder: Path, run: Run) -> None:
        config = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
            "scrape_configs": [
                {
                    "job_name": "incast",
                    "file_sd_configs": [{"files": [str(run.output / "metrics.json")], "refresh_interval": "1s"}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self.log = folder / "prometheus.log"
        self._file = self.log.open("w")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=self._file,
            stderr=self._file,
        )
        wait_until(lambda: "Server is ready" in self.log.read_text(), "a Prometheus that is ready", 30)
        assert self._port() is not None, self.log.read_text()
        self.url = f"http://127.0.0.1:{self._port()}/api/v1"

    def _port(self) -> str | None:
        found = re.findall(r"address=127\.0\.0\.1:([1-9]\d*)", self.log.read_text())
        return found[-1] if found else None

    def ask(self, what: str, **arguments: str) -> Any:
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self.url}/{what}?{query}", timeout=20) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[float]:
        return [float(one["value"][1]) for one in self.ask("query", query=expression)["result"]]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self._file.close()


@pytest.fixture
def scraped(start: Start, tmp_path: Path) -> Iterator[tuple[Run, Prometheus]]:
    if shutil.which("prometheus") is None:
        pytest.skip("no Prometheus on this host (Debian package prometheus; tools/setup.sh, purpose web)")
    run = start({**SETTINGS, "source.trigger_rate": "2kHz"})
    addresses(run, 3)
    server = Prometheus(tmp_path, run)
    try:
        yield run, server
    finally:
        server.close()


def test_a_real_prometheus_sees_every_series(scraped: tuple[Run, Prometheus]) -> None:
    run, server = scraped
    wait_until(lambda: len(server.values("incast_run_info")) == 3, "three nodes", 30)
    known = documented()
    for name, (kind, _) in known.items():
        metric = f"{name}_count" if kind == "summary" else name
        assert len(server.values(metric)) >= 3, metric
    metadata = server.ask("metadata")
    for name, (kind, words) in known.items():
        assert metadata[name] == [{"type": kind, "help": f"{words}.", "unit": ""}]
    assert set(server.values('up{job="incast"}')) == {1}
    # Units: 2 kHz of events in each readout unit, of 3 x 1 KiB; CPU seconds below what the cores have.
    wait_until(lambda: min(server.values("count_over_time(incast_run_info[1m])")) > 15, "scrapes for a rate", 30)
    rate = sum(server.values("rate(incast_accepted_events_total[3s])")) / 3
    assert rate == pytest.approx(2e3, rel=0.3)
    goodput = sum(server.values("rate(incast_built_goodput_bytes_total[3s])"))
    assert goodput == pytest.approx(2e3 * 3 * 1024, rel=0.3)
    (cpu,) = server.values("sum(rate(incast_cpu_seconds_total[3s]))")
    assert 0 < cpu <= (os.cpu_count() or 1) * 1.2
    (ages,) = server.values("max(abs(time() - incast_sample_timestamp_seconds))")
    assert ages < 10
    # The dashboard: every panel shows something, whatever its name in Grafana's variables.
    for expression in dashboard_expressions():
        plain = expression.replace("$__rate_interval", "3s").replace('incast_run=~"$run"', 'incast_run=~".+"')
        plain = plain.replace('node=~"$node"', 'node=~".+"')
        assert server.ask("query", query=plain)["result"], plain
    stop(run)
