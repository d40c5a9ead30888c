"""Hadoop's daemons on the hosts of network.py, configured so that all they say goes over the fabric.

The addresses in these settings are what does it. `hadoop.security.dns.interface` is for the name by which a daemon
knows itself; `dfs.datanode.hostname` and `yarn.nodemanager.hostname` for the one by which others reach it.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from network import FABRIC, HadoopError, Host, Network, wait_until

REPLICAS = 2  # so that a block has another data node to go to when one of three dies
BLOCK_BYTES = 16 << 20
_START_S = 600.0
_DAEMONS = {
    "namenode": ("org.apache.hadoop.hdfs.server.namenode.NameNode", 192),
    "datanode": ("org.apache.hadoop.hdfs.server.datanode.DataNode", 128),
    "resourcemanager": ("org.apache.hadoop.yarn.server.resourcemanager.ResourceManager", 192),
    "nodemanager": ("org.apache.hadoop.yarn.server.nodemanager.NodeManager", 128),
    "historyserver": ("org.apache.hadoop.mapreduce.v2.hs.JobHistoryServer", 128),
}
# Without UsePerfData a JVM leaves no file in the folder of temporary files.
_JVM = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true",
        "--add-opens=java.base/java.lang=ALL-UNNAMED")  # fmt: skip
_LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""


@dataclass
class Cluster:
    """A name node and data nodes that run; with YARN its daemons, too."""

    network: Network
    jars: Path
    work: Path  # in memory: blocks, and what programs leave
    logs: Path
    java: Path
    has_yarn: bool
    daemons: dict[tuple[str, int], subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def master(self) -> Host:
        """Where the name node is and no data node: what a client reads there has come over the fabric."""
        return self.network.hosts[0]

    def command(self, host: Host, program: str, heap_mb: int, *words: str) -> list[str]:
        """A program of Hadoop on that host."""
        own = self.work / host.own_name
        options = [*_JVM, f"-Xmx{heap_mb}m", f"-Djava.io.tmpdir={own / 'tmp'}", f"-Dhadoop.log.dir={own}"]
        return host.inside(str(self.java), *options, "-cp", f"{own / 'conf'}:{self.jars}/*", program, *words)

    def start(self, daemon: str, host: Host) -> None:
        """It does not wait until it serves."""
        program, heap_mb = _DAEMONS[daemon]
        with (self.logs / f"{daemon}-{host.index}.log").open("ab") as log:
            self.daemons[daemon, host.index] = subprocess.Popen(
                self.command(host, program, heap_mb),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "JAVA_HOME": str(self.java.parent.parent)},
            )

    def kill(self, daemon: str, host: Host) -> None:
        """As if the host had lost power, for this daemon."""
        process = self.daemons.pop((daemon, host.index))
        process.kill()
        process.wait()

    def live_data_nodes(self) -> int:
        """As the name node sees it; 0 if it does not answer."""
        return int(self._of_name_node("FSNamesystemState", "NumLiveDataNodes"))

    def under_replicated_blocks(self) -> int:
        """Those with too few replicas; -1 if the name node does not answer."""
        return int(self._of_name_node("FSNamesystemState", "UnderReplicatedBlocks", -1))

    def _of_name_node(self, bean: str, name: str, unknown: int = 0) -> int:
        url = f"http://{self.master.fabric_name}:9870/jmx?qry=Hadoop:service=NameNode,name={bean}"
        try:
            found: int = json.loads(self.master.fetch(url))["beans"][0][name]
        except (ValueError, IndexError, KeyError):
            return unknown
        return found

    def live_node_managers(self) -> int:
        """As the resource manager sees it."""
        said = self.master.fetch(f"http://{self.master.fabric_name}:8088/ws/v1/cluster/metrics")
        try:
            return int(json.loads(said)["clusterMetrics"]["activeNodes"])
        except (ValueError, KeyError):
            return 0

    def check_alive(self) -> None:
        """HadoopError if a daemon has ended."""
        for (daemon, index), process in self.daemons.items():
            if process.poll() is not None:
                log = self.logs / f"{daemon}-{index}.log"
                raise HadoopError(f"the {daemon} of host {index} ended with status {process.returncode}: {log}")

    def is_complete(self) -> bool:
        """All daemons serve."""
        self.check_alive()
        wanted = len(self.network.hosts) - 1
        return self.live_data_nodes() == wanted and (not self.has_yarn or self.live_node_managers() == wanted)


@contextmanager
def cluster(network: Network, *, jars: Path, work: Path, logs: Path, java: Path, has_yarn: bool) -> Iterator[Cluster]:
    """One that serves; its daemons end with the block."""
    made = Cluster(network, jars, work, logs, java, has_yarn)
    for host in network.hosts:
        _configure(made, host)
    _format(made)
    try:
        made.start("namenode", made.master)
        wait_until(lambda: made.under_replicated_blocks() == 0, f"the name node answers: {logs}", _START_S, 0.5)
        for host in network.hosts[1:]:
            made.start("datanode", host)
        if has_yarn:
            made.start("resourcemanager", made.master)
            made.start("historyserver", made.master)
            for host in network.hosts[1:]:
                made.start("nodemanager", host)
        wait_until(made.is_complete, f"all daemons serve: {logs}", _START_S, 0.5)
        yield made
    finally:
        for process in made.daemons.values():
            process.terminate()
        for process in made.daemons.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def _format(made: Cluster) -> None:
    words = made.command(made.master, _DAEMONS["namenode"][0], 128, "-format", "-force", "-nonInteractive")
    with (made.logs / "format.log").open("wb") as log:
        status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode
    if status != 0:
        raise HadoopError(f"the name node's folder could not be formatted: {log.name}")


def _configure(made: Cluster, host: Host) -> None:
    conf = made.work / host.own_name / "conf"
    for folder in (conf, made.work / host.own_name / "tmp"):
        folder.mkdir(parents=True)
    # The jars lack these folders, without which the servers of HTTP do not start.
    for name in ("hdfs", "datanode", "static"):
        (conf / "webapps" / name).mkdir(parents=True)
    (conf / "log4j.properties").write_text(_LOG4J)
    files = {
        "core-site.xml": _core(made, host),
        "hdfs-site.xml": _hdfs(made, host),
        "mapred-site.xml": _mapred(made, host),
        "yarn-site.xml": _yarn(made, host),
    }
    for name, settings in files.items():
        lines = [
            f"<property><name>{escape(key)}</name><value>{escape(str(value))}</value></property>"
            for key, value in settings.items()
        ]
        (conf / name).write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


def _core(made: Cluster, host: Host) -> Mapping[str, object]:
    return {
        "fs.defaultFS": f"hdfs://{made.master.fabric_name}:8020",
        "hadoop.security.dns.interface": FABRIC,
        "hadoop.tmp.dir": made.work / host.own_name / "tmp",
    }


def _hdfs(made: Cluster, host: Host) -> Mapping[str, object]:
    own = made.work / host.own_name
    return {
        "dfs.namenode.rpc-address": f"{made.master.fabric_name}:8020",
        "dfs.namenode.rpc-bind-host": made.master.fabric_address,
        "dfs.namenode.http-address": f"{made.master.fabric_name}:9870",
        "dfs.namenode.http-bind-host": made.master.fabric_address,
        "dfs.namenode.name.dir": f"file://{own}/name",
        "dfs.namenode.safemode.extension": 0,
        # A data node that says nothing for 2 x 10 s + 10 x 1 s is dead: more than a cable that is out for 20 s.
        "dfs.namenode.heartbeat.recheck-interval": 10_000,
        "dfs.heartbeat.interval": 1,
        "dfs.namenode.redundancy.interval.seconds": 1,
        "dfs.datanode.data.dir": f"file://{own}/data",
        "dfs.datanode.hostname": host.fabric_name,
        "dfs.datanode.address": f"{host.fabric_address}:9866",
        "dfs.datanode.ipc.address": f"{host.fabric_address}:9867",
        "dfs.datanode.http.address": f"{host.fabric_address}:9864",
        "dfs.client.local.interfaces": FABRIC,
        "dfs.client.use.datanode.hostname": "false",
        "dfs.datanode.use.datanode.hostname": "false",
        "dfs.client.read.shortcircuit": "false",
        "dfs.replication": REPLICAS,
        "dfs.blocksize": BLOCK_BYTES,
        "dfs.permissions.enabled": "false",
    }


def _mapred(made: Cluster, host: Host) -> Mapping[str, object]:
    shared = {
        "mapreduce.task.io.sort.mb": 32,
        "mapreduce.map.speculative": "false",
        "mapreduce.reduce.speculative": "false",
    }
    if not made.has_yarn:
        local = {"mapreduce.framework.name": "local", "mapreduce.local.map.tasks.maximum": 2}
        return {**shared, **local, "mapreduce.cluster.local.dir": made.work / host.own_name / "mapred"}
    options = " ".join([*_JVM, "-Xmx256m"])
    return {
        **shared,
        "mapreduce.framework.name": "yarn",
        "mapreduce.application.classpath": _class_path(made),
        "mapreduce.jobhistory.address": f"{made.master.fabric_name}:10020",
        "mapreduce.jobhistory.bind-host": made.master.fabric_address,
        "mapreduce.jobhistory.webapp.address": f"{made.master.fabric_name}:19888",
        "yarn.app.mapreduce.am.staging-dir": "/staging",
        "mapreduce.client.submit.file.replication": REPLICAS,
        "yarn.app.mapreduce.am.resource.mb": 512,
        "yarn.app.mapreduce.am.command-opts": options,
        "mapreduce.map.memory.mb": 512,
        "mapreduce.map.java.opts": options,
        "mapreduce.reduce.memory.mb": 512,
        "mapreduce.reduce.java.opts": options,
    }


def _yarn(made: Cluster, host: Host) -> Mapping[str, object]:
    own = made.work / host.own_name
    schedulers = "org.apache.hadoop.yarn.server.resourcemanager.scheduler"
    return {
        "yarn.resourcemanager.hostname": made.master.fabric_name,
        "yarn.resourcemanager.bind-host": made.master.fabric_address,
        "yarn.resourcemanager.scheduler.class": f"{schedulers}.fifo.FifoScheduler",
        "yarn.scheduler.minimum-allocation-mb": 256,
        "yarn.nm.liveness-monitor.expiry-interval-ms": 60_000,
        "yarn.application.classpath": _class_path(made),
        "yarn.nodemanager.hostname": host.fabric_name,
        "yarn.nodemanager.bind-host": host.fabric_address,
        "yarn.nodemanager.address": f"{host.fabric_name}:8041",
        "yarn.nodemanager.local-dirs": own / "local",
        "yarn.nodemanager.log-dirs": made.logs / f"containers-{host.index}",
        "yarn.nodemanager.aux-services": "mapreduce_shuffle",
        "yarn.nodemanager.env-whitelist": "JAVA_HOME",
        "yarn.nodemanager.resource.memory-mb": 1024,
        "yarn.nodemanager.resource.cpu-vcores": 2,
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.log-aggregation-enable": "false",
        "yarn.timeline-service.enabled": "false",
    }


def _class_path(made: Cluster) -> str:
    """Of containers: settings that name a host are their node manager's, so those of the master will do."""
    return f"{made.work / made.master.own_name / 'conf'},{made.jars}/*"
