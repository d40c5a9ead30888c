"""A host of a cluster of Dask, as a process: a scheduler, workers, or both. Prints the scheduler's address, and waits.

usage: dask_host.py ADDRESS WORKERS     ADDRESS may be empty: a scheduler of its own
"""

import asyncio
import logging
import sys

from distributed import Scheduler, Worker


async def main(address: str, workers: int) -> None:
    """Ends with its standard input."""
    logging.disable()
    if not address:
        scheduler = await Scheduler(host="127.0.0.1", port=0, dashboard=False)
        address = str(scheduler.address)
    for _ in range(workers):
        await Worker(address, host="127.0.0.1", nthreads=1, dashboard=False)
    print(address, flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
