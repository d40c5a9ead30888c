"""A cluster of network namespaces: a head, and hosts that are reached from it by ssh. Each has a name of its own."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support import must, process_state, said_by, wait_until

_SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
SSHD = shutil.which("sshd", path=_SYSTEM_PATH)
_SLURM_CONF = """ClusterName=test
SlurmctldHost=localhost({head})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={socket}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SlurmdParameters=config_overrides
ReturnToService=2
InactiveLimit=0
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
PREFIX = "node"


class Cluster:
    """`hosts` of them, node1 and so on, with the addresses 10.77.0.2 and so on; the head is 10.77.0.1. Hosts have a
    second network, in which the head is not: eth1, 10.78.0.2 and so on.
    """

    def __init__(self, folder: Path, hosts: int) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.names = [f"{PREFIX}{index + 1}" for index in range(hosts)]
        self._spaces = [f"incast-{os.getpid()}-{name}" for name in ("head", *self.names)]
        self._daemons: list[subprocess.Popen[bytes]] = []

    @staticmethod
    def address(index: int, network: int = 0) -> str:
        """Of a host; the head is 0."""
        return f"10.{77 + network}.0.{index + 1}"

    def open(self) -> None:
        """Skips the test where it cannot be."""
        if os.geteuid() != 0:
            pytest.skip("network namespaces need root")
        if SSHD is None:
            pytest.skip("there is no sshd")
        head = self._spaces[0]
        if why := said_by("ip", "netns", "add", head) or said_by("ip", "-n", head, "link"):
            pytest.skip(f"this host gives no network namespace: {why}")
        for network in range(2):
            must("ip", "-n", head, "link", "add", f"br{network}", "type", "bridge")
            must("ip", "-n", head, "link", "set", f"br{network}", "up")
        must("ip", "-n", head, "address", "add", f"{self.address(0)}/24", "dev", "br0")
        must("ip", "-n", head, "link", "set", "lo", "up")
        for index, space in enumerate(self._spaces[1:], 1):
            must("ip", "netns", "add", space)
            for network in range(2):
                device, port, at = f"eth{network}", f"p{network}-{index}", self.address(index, network)
                peer = ["peer", "name", port, "netns", head]
                must("ip", "link", "add", device, "netns", space, "type", "veth", *peer)
                must("ip", "-n", head, "link", "set", port, "master", f"br{network}", "up")
                must("ip", "-n", space, "address", "add", f"{at}/24", "dev", device)
                must("ip", "-n", space, "link", "set", device, "up")
            must("ip", "-n", space, "link", "set", "lo", "up")
        for key in ("host_key", "user_key"):
            must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        Path("/run/sshd").mkdir(exist_ok=True)
        for index, name in enumerate(self.names, 1):
            self._start_sshd(index, name)
        self._write_client()
        for name in self.names:
            wait_until(
                lambda name=name: said_by(*self.words("ssh", "-F", self.ssh_config, name, "true")) == "", name, 60
            )

    @property
    def ssh_config(self) -> str:
        """For `ssh -F`."""
        return str(self.folder / "ssh_config")

    @property
    def ssh_program(self) -> str:
        """An `ssh` that needs no option."""
        return str(self.folder / "ssh")

    def _start_sshd(self, index: int, name: str) -> None:
        options = {
            "ListenAddress": self.address(index),
            "AuthorizedKeysFile": f"{self.folder}/user_key.pub",
            "StrictModes": "no",
            "PermitRootLogin": "prohibit-password",
            "PasswordAuthentication": "no",
            "UsePAM": "no",
            "PidFile": "none",
            "SetEnv": f"HOME={self.home}",
        }
        words = [str(SSHD), "-D", "-e", "-f", "/dev/null", "-h", f"{self.folder}/host_key"]
        words += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        # exec, so that the process is sshd itself.
        host = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', name, *words]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", self._spaces[index], *host],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _write_client(self) -> None:
        lines = [f"IdentityFile {self.folder}/user_key", "IdentitiesOnly yes", "StrictHostKeyChecking no"]
        lines += [f"UserKnownHostsFile {self.folder}/known_hosts", "LogLevel ERROR"]
        for index, name in enumerate(self.names, 1):
            lines += [f"Host {name}", f"  HostName {self.address(index)}"]
        (self.folder / "ssh_config").write_text("\n".join(lines) + "\n")
        program = Path(self.ssh_program)
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.ssh_config} "$@"\n')
        program.chmod(0o755)

    def open_slurm(self) -> None:
        """Slurm over the hosts, controlled by the head; skips the test where there is none."""
        programs = {name: shutil.which(name, path=_SYSTEM_PATH) for name in ("munged", "slurmctld", "slurmd", "srun")}
        if absent := [name for name, path in programs.items() if path is None]:
            pytest.skip(f"there is no {absent[0]}")
        folder = self.folder / "slurm"
        for name in ("", "munge", "state", "spool", *(f"spool/{host}" for host in self.names)):
            (folder / name).mkdir(mode=0o700 if name == "munge" else 0o755)
        socket, key = folder / "munge.socket", folder / "munge" / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        files = {"pid": "pid", "log": "log", "seed": "seed"}
        munged = [f"--{name}-file={folder}/munge/{file}" for name, file in files.items()]
        self._start_daemon(
            0, str(programs["munged"]), "--foreground", "--force", f"--socket={socket}", f"--key-file={key}", *munged
        )
        wait_until(socket.exists, "munged", 60)
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={name} NodeAddr={self.address(index)} CPUs=1 State=UNKNOWN"
            for index, name in enumerate(self.names, 1)
        )
        configuration = folder / "slurm.conf"
        configuration.write_text(_SLURM_CONF.format(head=self.address(0), folder=folder, socket=socket, nodes=nodes))
        os.environ["SLURM_CONF"] = str(configuration)
        self._start_daemon(0, str(programs["slurmctld"]), "-D", "-c")
        for index, name in enumerate(self.names, 1):
            self._start_daemon(index, str(programs["slurmd"]), "-D", "-N", name)
        idle = self.words("sinfo", "-h", "-t", "idle", "-o", "%D")

        def all_idle() -> bool:
            done = subprocess.run(idle, capture_output=True, text=True, check=False)
            return done.stdout.strip() == str(len(self.names))

        wait_until(all_idle, "slurm", 60)

    def _start_daemon(self, host: int, *words: str) -> None:
        with (self.folder / f"{Path(words[0]).name}-{host}.log").open("wb") as log:
            self._daemons.append(
                # Not `ip netns exec`, which mounts another /sys, without the control groups that slurmd looks for.
                subprocess.Popen(
                    ["nsenter", f"--net=/run/netns/{self._spaces[host]}", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def sshd(self, host: int) -> int:
        """The process that listens there."""
        return self._daemons[host - 1].pid

    def words(self, *command: str, host: int = 0) -> list[str]:
        """The command, on the head or another host."""
        return ["ip", "netns", "exec", self._spaces[host], *command]

    def incast(self, *words: str, host: int = 0) -> list[str]:
        """The command line of `incast` there."""
        return self.words(*self.python(), *words, host=host)

    @staticmethod
    def python() -> list[str]:
        """What `incast` is short for."""
        return [sys.executable, "-m", "incast"]

    def pids(self) -> list[int]:
        """Of all processes on head and hosts, but for the daemons."""
        daemons = {daemon.pid for daemon in self._daemons}
        found: list[int] = []
        for space in self._spaces:
            listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
            found += [int(pid) for pid in listed.stdout.split()]
        left = [pid for pid in found if pid not in daemons and process_state(pid) not in ("", "Z")]
        return [pid for pid in left if not command_line(pid).startswith("slurmctld: ")]

    def find(self, *wanted: str) -> list[int]:
        """Those whose command lines have all these words."""
        return [pid for pid in self.pids() if all(word in command_line(pid) for word in wanted)]

    def close(self) -> None:
        """Nothing is left."""
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
        until = time.monotonic() + 20
        while (left := self.pids()) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for space in self._spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def others_find(text: str) -> list[str]:
    """Command lines and environments of processes in which another user finds the text."""
    look = "grep -lasF -f - /proc/[0-9]*/cmdline /proc/[0-9]*/environ"  # a text of its own command line it would find
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    seen = subprocess.run(
        ["sh", "-c", look], input=text + "\n", capture_output=True, text=True, timeout=120, check=False, **nobody
    )
    return seen.stdout.split()


def command_line(pid: int) -> str:
    """With blanks between its words."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


@contextlib.contextmanager
def cluster_of(hosts: int, folder: Path) -> Iterator[Cluster]:
    """One that is there for a while."""
    cluster = Cluster(folder, hosts)
    try:
        cluster.open()
        yield cluster
    finally:
        cluster.close()


def seconds_until_empty(cluster: Cluster, limit_s: float, but: Sequence[int] = ()) -> float:
    """How long it took until nothing ran on head and hosts any more."""
    began = time.monotonic()
    wait_until(lambda: not set(cluster.pids()) - set(but), f"the end of {shown(cluster)}", limit_s)
    return time.monotonic() - began


def shown(cluster: Cluster) -> list[str]:
    """What runs there."""
    return [f"{pid}: {command_line(pid)[:200]}" for pid in cluster.pids()]
