"""What jobs do when the network or a data node fails: docs/hadoop.md."""

from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

from cluster import REPLICAS
from network import FABRIC, HadoopError, Host, wait_until
from workloads import Clients, Running, sort_rows

DOWN_S = 20.0
_ROWS = 640_000
_ENOUGH_BYTES = 8 << 20
_REPLICATED_S = 180.0


def faults(clients: Clients) -> Iterator[dict[str, Any]]:
    """While rows are sorted: a link that is down for 20 s and comes back; a data node that is killed."""
    hosts = clients.cluster.network.hosts

    def take_down(host: Host) -> None:
        clients.cluster.network.set_link(host, "down")
        begin = monotonic()
        while monotonic() - begin < DOWN_S:
            sleep(0.1)
        clients.cluster.network.set_link(host, "up")

    def kill(host: Host) -> None:
        clients.cluster.kill("datanode", host)

    yield from _with(clients, hosts[2], f"the link of {hosts[2].fabric_name} is down for {DOWN_S:g} s", take_down)
    yield from _with(clients, hosts[3], f"the data node of {hosts[3].fabric_name} is killed", kill)


def _with(clients: Clients, host: Host, what: str, act: Callable[[Host], None]) -> Iterator[dict[str, Any]]:
    """The jobs, TeraSort with that fault; then every block has its replicas again."""
    ran_on = False

    def during(running: Running) -> None:
        nonlocal ran_on
        _wait_for_bytes(running, host)
        clients.say(what)
        act(host)
        ran_on = not running.has_ended

    folder = f"/jobs-{host.fabric_name}"
    for found in sort_rows(clients, _ROWS, folder, during):
        if found["job"] == "terasort":
            found |= {"fault": what, "ran_on": ran_on}
        if found["job"] == "teravalidate":
            found["checks"] |= _whole_again(clients)
            found["valid"] = all(found["checks"].values())
        yield found


def _wait_for_bytes(running: Running, host: Host) -> None:
    """Until the job has moved some over that host's link."""

    def count() -> int:
        counters = host.counters(FABRIC)
        return counters["sent_bytes"] + counters["received_bytes"]

    before = count()

    def moved() -> bool:
        if running.has_ended:
            raise HadoopError(f"the job ended before {_ENOUGH_BYTES} B went over the link of {host.fabric_name}")
        return count() >= before + _ENOUGH_BYTES

    wait_until(moved, f"{_ENOUGH_BYTES} B over the link of {host.fabric_name}", 300.0, 0.02)


def _whole_again(clients: Clients) -> dict[str, bool]:
    """The name node has as many data nodes as run, and every block has its replicas."""
    cluster = clients.cluster
    # TeraSort wants ten of its tables of partitions, more than there are data nodes.
    clients.run("setrep", "org.apache.hadoop.fs.FsShell", "-setrep", str(REPLICAS), "/")
    alive = sum(daemon == "datanode" for daemon, _ in cluster.daemons)
    what = f"every block has its replicas, on {alive} data nodes"
    try:
        wait_until(
            lambda: cluster.live_data_nodes() == alive and cluster.under_replicated_blocks() == 0,
            what,
            _REPLICATED_S,
            0.5,
        )
    except HadoopError:
        return {what: False}
    return {what: True}
