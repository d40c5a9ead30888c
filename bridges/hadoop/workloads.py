"""The programs that HiBench's micro workloads are made of, each with a check of what came out of it.

TestDFSIO, TeraGen, TeraSort, TeraValidate, RandomTextWriter, Sort and WordCount of Hadoop itself. HiBench
(github.com/Intel-bigdata/HiBench) runs the same ones, but for a class of its own in place of TestDFSIO: so these are
equivalents.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from cluster import REPLICAS, Cluster
from network import HadoopError

_MIB = 1 << 20
_EXAMPLES = "org.apache.hadoop.examples"
_TEXT = "org.apache.hadoop.io.Text"
_PLAIN = "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat"
_DFSIO = "org.apache.hadoop.fs.TestDFSIO"
_DFSIO_DATA = "/benchmarks/TestDFSIO/io_data"
_PATIENCE_S = 1800.0
_CLIENT_MB = 512


@dataclass(frozen=True)
class Scale:
    """How much data; `tiny` and `small` are HiBench's."""

    dfsio_files: int
    dfsio_mib: int  # each
    rows: int  # of TeraGen, 100 bytes each
    sort_bytes: int
    word_bytes: int


SCALES = {
    "tiny": Scale(16, 1, 32_000, 32_000, 32_000),
    "trial": Scale(4, 32, 320_000, 8_000_000, 16_000_000),
    "small": Scale(32, 10, 3_200_000, 3_200_000, 320_000_000),
}


@dataclass(frozen=True)
class Done:
    """A program that has ended well."""

    seconds: float
    said: str
    fabric_bytes: int  # that all hosts sent meanwhile

    def number(self, name: str) -> float:
        """What it said last behind that, which is of the whole job; HadoopError if it did not."""
        found = re.findall(re.escape(name) + r"\s*(-?[\d.]+)", self.said)
        if not found:
            raise HadoopError(f"a program did not say {name}")
        return float(found[-1])

    def integer(self, name: str) -> int:
        """The same, of any size."""
        found = re.findall(re.escape(name) + r"\s*(-?\d+)", self.said)
        if not found:
            raise HadoopError(f"a program did not say {name}")
        return int(found[-1])


class Running:
    """A program that may still run."""

    def __init__(self, clients: "Clients", name: str, program: str, words: tuple[str, ...]) -> None:
        self._clients, self._name = clients, name
        self._log = clients.log_of(name)
        cluster = clients.cluster
        self._before = cluster.network.fabric_sent_bytes()
        self._begin = monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                cluster.command(cluster.master, program, _CLIENT_MB, *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def finish(self) -> Done:
        """HadoopError if it failed, or takes too long."""
        try:
            status = self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise HadoopError(f"{self._name}: not done in {_PATIENCE_S:g} s: {self._log}") from error
        seconds = monotonic() - self._begin
        said = self._log.read_text(errors="replace")
        if status != 0:
            raise HadoopError(f"{self._name}: ended with status {status}: {self._log}")
        return Done(seconds, said, self._clients.cluster.network.fabric_sent_bytes() - self._before)


@dataclass
class Clients:
    """Starts programs on the host of the name node."""

    cluster: Cluster
    logs: Path
    say: Callable[[str], None]
    started: int = 0

    def log_of(self, name: str) -> Path:
        self.started += 1
        return self.logs / f"{self.started:02}-{name}.log"

    def start(self, name: str, program: str, *words: str) -> Running:
        """Returns at once."""
        self.say(name)
        return Running(self, name, program, words)

    def run(self, name: str, program: str, *words: str) -> Done:
        """Until it has ended."""
        return self.start(name, program, *words).finish()

    @contextmanager
    def read(self, command: str, *paths: str) -> "Iterator[subprocess.Popen[bytes]]":
        """What `hdfs dfs -cat` or `-text` prints of files."""
        words = self.cluster.command(self.cluster.master, "org.apache.hadoop.fs.FsShell", 256, command, *paths)
        with self.log_of(command.strip("-")).open("wb") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        with process:
            yield process
        if process.returncode != 0:
            raise HadoopError(f"{' '.join(paths)}: cannot be read: {log.name}")

    def lines(self, command: str, *paths: str) -> list[bytes]:
        """The same, by lines."""
        with self.read(command, *paths) as process:
            assert process.stdout is not None
            return process.stdout.read().splitlines()


def record(name: str, done: Done, checks: dict[str, bool], **facts: float) -> dict[str, Any]:
    """Of a job, as the result keeps it."""
    return {
        "job": name,
        "seconds": round(done.seconds, 2),
        "fabric_sent_bytes": done.fabric_bytes,
        **facts,
        "checks": checks,
        "valid": all(checks.values()),
    }


def workloads(clients: Clients, scale: Scale, folder: str) -> Iterator[dict[str, Any]]:
    """Each once, below that folder of HDFS. What a check compares is read back over the fabric."""
    yield _write_files(clients, scale.dfsio_files, scale.dfsio_mib)
    yield _read_files(clients, scale)
    yield from sort_rows(clients, scale.rows, folder)
    yield from _sort_text(clients, scale.sort_bytes, folder)
    yield from _count_words(clients, scale.word_bytes, folder)


def _dfsio_words(clients: Clients, way: str, files: int, mib: int) -> list[str]:
    results = clients.cluster.work / "dfsio.txt"
    return [f"-{way}", "-nrFiles", str(files), "-size", f"{mib}MB", "-resFile", str(results)]


def _write_files(clients: Clients, files: int, mib: int) -> dict[str, Any]:
    done = clients.run("dfsio-write", _DFSIO, *_dfsio_words(clients, "write", files, mib))
    # A task of YARN writes its first replica to the data node beside it.
    least = files * mib * _MIB * (REPLICAS - 1 if clients.cluster.has_yarn else REPLICAS)
    checks = {
        "every byte of the files": _files_are_right(clients, files, mib),
        f"at least {least} B over the fabric": done.fabric_bytes >= least,
    }
    return record("dfsio-write", done, checks, megabytes_per_s=done.number("Throughput mb/sec:"))


def _files_are_right(clients: Clients, files: int, mib: int) -> bool:
    """TestDFSIO fills its buffer before it has one: so what it writes is zeros."""
    total = zeros = 0
    with clients.read("-cat", f"{_DFSIO_DATA}/test_io_*") as process:
        assert process.stdout is not None
        while block := process.stdout.read(_MIB):
            total += len(block)
            zeros += block.count(0)
    return total == zeros == files * mib * _MIB


def _read_files(clients: Clients, scale: Scale) -> dict[str, Any]:
    words = _dfsio_words(clients, "read", scale.dfsio_files, scale.dfsio_mib)
    done = clients.run("dfsio-read", _DFSIO, *words)
    wanted = scale.dfsio_files * scale.dfsio_mib
    checks = {f"read {wanted} MiB": done.number("Total MBytes processed:") == wanted}
    return record("dfsio-read", done, checks, megabytes_per_s=done.number("Throughput mb/sec:"))


def sort_rows(
    clients: Clients, rows: int, folder: str, during: Callable[[Running], None] | None = None
) -> Iterator[dict[str, Any]]:
    """TeraGen, TeraSort, TeraValidate. `during` is called once TeraSort has been started."""
    made, ordered, report = (f"{folder}/tera-{name}" for name in ("made", "sorted", "report"))
    two = ("-D", "mapreduce.job.maps=2"), ("-D", "mapreduce.job.reduces=2")
    replicas = ("-D", f"mapreduce.terasort.output.replication={REPLICAS}")  # of itself it asks for 1
    done = clients.run("teragen", f"{_EXAMPLES}.terasort.TeraGen", *two[0], str(rows), made)
    checksum = done.integer("CHECKSUM=")
    yield record("teragen", done, {f"{rows} rows": done.integer("Map output records=") == rows})
    running = clients.start("terasort", f"{_EXAMPLES}.terasort.TeraSort", *two[1], *replicas, made, ordered)
    if during is not None:
        during(running)
    done = running.finish()
    yield record("terasort", done, {f"{rows} rows": done.integer("Reduce output records=") == rows})
    done = clients.run("teravalidate", f"{_EXAMPLES}.terasort.TeraValidate", ordered, report)
    said = [line.split(b"\t") for line in clients.lines("-cat", f"{report}/part-r-*")]
    found = [int(each[1], 16) for each in said if each[0] == b"checksum"]
    checks = {
        "in order": len(said) == 1,
        "the sum of all rows' CRC-32 is that of TeraGen": [each % 2**64 for each in found] == [checksum % 2**64],
    }
    yield record("teravalidate", done, checks)


def _write_text(clients: Clients, size: int, path: str, *words: str) -> Done:
    maps = 2 if clients.cluster.has_yarn else 1  # LocalJobRunner has one, whatever it is told
    sizes = ("totalbytes", size), ("bytespermap", size // maps)
    options = [word for key, value in sizes for word in ("-D", f"mapreduce.randomtextwriter.{key}={value}")]
    return clients.run("randomtextwriter", f"{_EXAMPLES}.RandomTextWriter", *options, *words, path)


def _sort_text(clients: Clients, size: int, folder: str) -> Iterator[dict[str, Any]]:
    made, ordered = f"{folder}/text", f"{folder}/text-sorted"
    done = _write_text(clients, size, made)
    before = clients.lines("-text", f"{made}/part-*")
    yield record("randomtextwriter", done, {f"at least {size} B": sum(map(len, before)) >= size})
    classes = ("-r", "1", "-outKey", _TEXT, "-outValue", _TEXT)
    done = clients.run("sort", f"{_EXAMPLES}.Sort", *classes, made, ordered)
    after = clients.lines("-text", f"{ordered}/part-*")
    keys = [line.partition(b"\t")[0] for line in after]
    checks = {"in order": keys == sorted(keys), "the records that went in": sorted(before) == sorted(after)}
    yield record("sort", done, checks)


def _count_words(clients: Clients, size: int, folder: str) -> Iterator[dict[str, Any]]:
    made, counted = f"{folder}/words", f"{folder}/words-counted"
    _write_text(clients, size, made, "-outFormat", _PLAIN)
    expected: Counter[bytes] = Counter()
    with clients.read("-cat", f"{made}/part-*") as process:
        assert process.stdout is not None
        for line in process.stdout:
            expected.update(line.split())
    done = clients.run("wordcount", f"{_EXAMPLES}.WordCount", made, counted)
    lines = clients.lines("-cat", f"{counted}/part-*")
    found = {word: int(count) for word, count in (line.split(b"\t") for line in lines)}
    yield record("wordcount", done, {f"{sum(expected.values())} words, counted again": found == dict(expected)})


def remove_all(clients: Clients) -> None:
    """What the jobs left in HDFS."""
    clients.run("rm", "org.apache.hadoop.fs.FsShell", "-rm", "-r", "-f", "-skipTrash", "/benchmarks", "/jobs-*")
