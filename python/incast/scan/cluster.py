"""The simulated readings of a scan over a cluster, whose scheduler and workers are those of dask.distributed.

Dask watches the workers, and gives what a lost one had to another. The journal is here, as without a cluster: what a
worker brings back is written as a result directory, and from then on nothing tells where it was taken.
"""

import asyncio
import json
import logging
import os
import time
import tomllib
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from incast.base.errors import EXIT_BAD_CONFIG, EXIT_NO_ENGINE, OneLineError
from incast.base.extras import need
from incast.base.files import reason_of, writing_output
from incast.engine.fabric_text import file_key, read_fabric_text, stored
from incast.engine.transports import simulated
from incast.scan.errand import LIBRARY, PURPOSE, Brought, Errand, engine_here, host_state, take, wrong_engine
from incast.scan.journal import Journal
from incast.scan.plan import Plan, Reading
from incast.scan.runner import Taken, Watch

_PREFIX = "dask:"
_CONNECT_S = 10.0
_POLL_S = 0.2
_COUNT_S = 2.0  # between two looks at how many workers there are
_EXIT_FAILED = 1
_NAMED = 3  # of the workers where something is wrong


class Cluster:
    """One that is reached by the address of its scheduler."""

    def __init__(self, executor: str) -> None:
        """`executor`: as on the command line. OneLineError: it is no such address, or the library is not here."""
        self._name = f"--executor {executor}"
        self._address = executor.removeprefix(_PREFIX)
        host, _, port = self._address.rpartition("://")[2].rpartition(":")
        if not executor.startswith(_PREFIX) or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise OneLineError(f"{self._name}: allowed: dask:HOST:PORT, the scheduler's address", EXIT_BAD_CONFIG)
        self._host, self._port = host.strip("[]"), int(port)
        self._dask = need(LIBRARY, PURPOSE)
        self.at_a_time = 0  # readings that its workers take, as check() saw it
        logging.disable()  # what is worth a line is said in one of ours

    def check(self) -> None:
        """OneLineError: it cannot be reached, or scheduler or workers lack this version."""

        async def look() -> None:
            async with self._client() as client:
                await self._check(client)
                self.at_a_time = sum((await client.nthreads()).values())

        asyncio.run(look())

    def take(self, journal: Journal, readings: Sequence[Reading], *, jobs: int, asked: int, watch: Watch) -> bool:
        """As take_readings(). `jobs`: at a time; 0: all that the workers can, and as many again that wait there."""
        return asyncio.run(self._take(journal, readings, jobs, asked, watch))

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                # The library tries again until its time is over, and does not say why in vain.
                async with asyncio.timeout(_CONNECT_S):
                    _, writer = await asyncio.open_connection(self._host, self._port)
                writer.close()
                client = await self._dask.Client(
                    self._address, asynchronous=True, set_as_default=False, timeout=_CONNECT_S
                )
            except (OSError, ValueError) as error:
                why = _why(error)
                raise OneLineError(f"{self._name}: the scheduler cannot be reached: {why}", _EXIT_FAILED) from error
            try:
                yield client
            finally:
                with suppress(OSError, TimeoutError):
                    await client.close()

    async def _check(self, client: Any) -> None:
        versions = await client.get_versions(packages=["incast"])
        if not versions["scheduler"]["packages"].get("incast"):
            raise self._wrong(["the scheduler: no Python package incast"])
        wrong = []
        for worker, state in (await client.run(host_state, on_error="return")).items():
            why = f"no Python package incast: {state}" if isinstance(state, Exception) else self._wrong_engine(state)
            if why:
                wrong.append(f"worker {worker}: {why}")
        if wrong:
            raise self._wrong(wrong)

    @staticmethod
    def _wrong_engine(state: tuple[str, str]) -> str:
        return wrong_engine(*state, engine_here())

    def _wrong(self, lines: Sequence[str]) -> OneLineError:
        more = f"; and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
        needed = "allowed: the same version of incast on scheduler and workers as here"
        return OneLineError(f"{self._name}: {'; '.join(lines[:_NAMED])}{more}; {needed}", EXIT_NO_ENGINE)

    async def _take(self, journal: Journal, readings: Sequence[Reading], jobs: int, asked: int, watch: Watch) -> bool:
        errand_of = _errands(journal)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(asked, stop.set)
        waiting, working = list(readings)[::-1], set[asyncio.Task[Taken]]()
        width, next_count = jobs or 1, 0.0
        async with self._client() as client:
            try:
                while (waiting or working) and not stop.is_set():
                    if not jobs and time.monotonic() >= next_count:
                        width = max(2, 2 * sum((await client.nthreads()).values()))
                        next_count = time.monotonic() + _COUNT_S
                    while waiting and len(working) < width:
                        reading = waiting.pop()
                        working.add(asyncio.create_task(self._taken(client, journal, errand_of(reading))))
                        watch.on_start(reading)
                    done, working = await asyncio.wait(working, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
                    for each in done:
                        watch.on_taken(each.result())
                    watch.on_tick()
            finally:
                for each in working:
                    each.cancel()
        return not stop.is_set()

    async def _taken(self, client: Any, journal: Journal, errand: Errand) -> Taken:
        reading = errand.reading
        try:
            brought: Brought = await client.submit(take, errand, pure=False)
        except self._dask.KilledWorker as error:
            return _lost(journal, reading, f"every worker that took it was lost: {error}")
        except self._dask.CancelledError as error:
            raise self._gone(journal) from error
        except Exception as error:
            raise OneLineError(f"{self._name}: {error}", _EXIT_FAILED) from error
        if brought.wrong:
            raise self._wrong([f"worker {brought.wrong}"])
        if brought.taken is None:
            raise self._gone(journal)
        directory = journal.clear(reading)
        with writing_output(journal.folder):
            if brought.files:
                directory.mkdir()
            for name, content in brought.files:
                (directory / Path(name).name).write_bytes(content)
        result = json.loads(dict(brought.files)["result.json"]) if brought.has_result else None
        return replace(brought.taken, reading=reading, directory=directory, result=result)

    def _gone(self, journal: Journal) -> OneLineError:
        return OneLineError(
            f"{self._name}: the scheduler is gone; what is done is kept: incast scan --resume {journal.folder}",
            _EXIT_FAILED,
        )


def _why(error: OSError | ValueError) -> str:
    """That of a connection that does not come about; asyncio puts words of its own before the kernel's."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    words = reason_of(error) if isinstance(error, OSError) else str(error)
    return words or f"no answer within {_CONNECT_S:.0f} s"


def _lost(journal: Journal, reading: Reading, reason: str) -> Taken:
    began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Taken(reading, journal.clear(reading), "no result", reason, _EXIT_FAILED, None, None, began, 0.0)


def _errands(journal: Journal) -> Callable[[Reading], Errand]:
    plan, texts = journal.plan, dict[str, str]()
    engine, begun_in, folder = engine_here(), str(Path.cwd()), journal.folder.resolve()

    def errand_of(reading: Reading) -> Errand:
        network = reading.point.fabric
        if not network and (named := _network_file(plan, reading)):
            if named not in texts:
                texts[named] = read_fabric_text(Path(named))
            network = texts[named]
        if network:
            stored(folder, network)  # results name it
        directory = str(journal.directory(reading).relative_to(journal.folder))
        return Errand(reading, plan.base, network, str(folder), directory, begun_in, engine, plan.timeout_seconds)

    return errand_of


def _network_file(plan: Plan, reading: Reading) -> str:
    """What the settings, or else the file below them, name; empty: none."""
    for setting in reversed(reading.point.settings):
        key, _, value = setting.partition("=")
        if key == file_key():
            return value
    found: object = tomllib.loads(plan.base)
    for name in ("transport", simulated(), "fabric"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""
