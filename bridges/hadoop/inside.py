"""One run: hosts, daemons, jobs. run.py starts it as the first process of namespaces of its own.

It is told by a file of JSON and the descriptor for what it says, and prints its result as JSON. What it makes is in
namespaces and in memory of its own, which end with it: /run and /dev/shm are folders in memory that only its processes
see.
"""

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

from cluster import BLOCK_BYTES, REPLICAS, cluster
from faults import faults
from network import HadoopError, Host, must, network
from workloads import SCALES, Clients, remove_all, workloads

HOSTS = 4  # a name node and three data nodes
_WORK = Path("/run/hadoop")
_MEMORY = "8g"  # at most; what is not used costs nothing


def main() -> int:
    """0: the result is printed. 1: one line on stderr says why there is none."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    os.dup2(int(sys.argv[2]), sys.stderr.fileno())
    try:
        result = _run(settings)
    except HadoopError as error:
        print(f"run.sh: {error}", file=sys.stderr)
        return 1
    json.dump(result, sys.stdout)
    return 0


def _say(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


def _run(settings: dict[str, Any]) -> dict[str, Any]:
    logs = Path(settings["logs"])
    hosts = [Host(index) for index in range(HOSTS)]
    _take_folders()
    _name_hosts(hosts)
    begin, load = monotonic(), os.getloadavg()[0]
    jobs: list[dict[str, Any]] = []
    broken: list[dict[str, Any]] = []
    with ExitStack() as stack:
        made = stack.enter_context(network(settings["network"], HOSTS, Path(settings["netdev"]), logs / "netdev.log"))
        management = made.management_bytes()
        options = {"jars": Path(settings["jars"]), "java": Path(settings["java"]), "has_yarn": settings["yarn"]}
        _say("daemons start")
        running = stack.enter_context(cluster(made, work=_WORK, logs=logs, **options))
        start_seconds = monotonic() - begin
        clients = Clients(running, logs, _say)
        for rate in [None, *settings["rates"]]:
            if rate is not None:
                _say(f"each host sends at most {rate:g} Mbit/s")
                remove_all(clients)
            made.limit(rate)
            found = workloads(clients, SCALES[settings["scale"]], f"/jobs-{rate or 'all'}")
            jobs += [{**job, "limit_mbit_per_s": rate} for job in found]
        made.limit(None)
        if settings["faults"]:
            broken = list(faults(clients))
        running.check_alive()
        after = made.management_bytes()
        devices = made.device_counters()
    spent = {name: after[name] - management[name] for name in after}
    return {
        "network": settings["network"],
        "framework": "yarn" if settings["yarn"] else "local",
        "scale": settings["scale"],
        "seconds": round(monotonic() - begin, 1),
        "start_seconds": round(start_seconds, 1),
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        "hosts": HOSTS,
        "replicas": REPLICAS,
        "block_bytes": BLOCK_BYTES,
        "jobs": jobs,
        "faults": broken,
        "management_bytes": spent,
        "device_counters": devices,
        "valid": all(job["valid"] for job in jobs + broken) and not any(spent.values()),
    }


def _take_folders() -> None:
    """In memory, and seen by the processes of this run alone."""
    for folder in ("/run", "/dev/shm"):
        must("mount", "-t", "tmpfs", "-o", f"size={_MEMORY}", "hadoop", folder)
    _WORK.mkdir()


def _name_hosts(hosts: list[Host]) -> None:
    """The same for all: names of the fabric, and of the management network."""
    lines = ["127.0.0.1 localhost"]
    for host in hosts:
        lines += [f"{host.fabric_address} {host.fabric_name}", f"{host.management_address} {host.own_name}"]
    _replace(Path("/etc/hosts"), "\n".join([*lines, ""]))
    _replace(Path("/etc/nsswitch.conf"), "hosts: files\npasswd: files\ngroup: files\n")
    _replace(Path("/etc/resolv.conf"), "")


def _replace(path: Path, text: str) -> None:
    """For the processes of this run."""
    target = path.resolve()
    if target.is_relative_to("/run"):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    elif target.exists():
        own = _WORK / path.name
        own.write_text(text)
        must("mount", "--bind", str(own), str(target))


if __name__ == "__main__":
    sys.exit(main())
