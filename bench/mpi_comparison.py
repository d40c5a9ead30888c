"""What the comparisons with MPI_Alltoall share."""

import argparse
from dataclasses import replace
from typing import Any

from harness import GIGABYTES, MESSAGES, Entrant, Outcome, Session, conditions, version_of
from programs import Incast, MpiAlltoall, bench_program, event_building, source_bytes
from sizes import Size

# The BTL of Open MPI that moves what the transport does.
_BTL = {"shm": "vader", "tcp": "tcp"}


def mpi_conditions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Conditions, with the versions of both programs."""
    return conditions(incast=version_of([str(arguments.engine), "--version"]), mpi=version_of(["mpirun", "--version"]))


def against_mpi(
    session: Session,
    arguments: argparse.Namespace,
    transport: str,
    *,
    scheme: str,
    mfp: Size,
    cache: int,
    message_rate: bool = False,
) -> Outcome:
    """One comparison: bytes between processes, or, with headers verified, messages between them."""
    subject = Incast(
        engine=arguments.engine,
        seconds=arguments.seconds,
        warm_up=arguments.warm_up,
        settings=event_building(
            transport=transport,
            scheme=scheme,
            mfp_bytes=mfp.bytes,
            nodes=arguments.nodes,
            cache=cache,
            # MPI copies what a rank has for itself, within the call that is measured: so does the event builder where
            # copying is what takes the time.
            self_traffic="copy" if transport == "shm" else "pointer",
            sink="verify:header" if message_rate else "null",
        ),
        overrides=tuple(arguments.overrides),
        quantity="crossing_mfps" if message_rate else "total_without_self",
        copies=scheme != "views",
    )
    sizes = subject.probe()
    message = -(-int(sizes["mfp_bytes"]) // 64) * 64
    print(
        f"\nMFPs of {sizes['mfp_bytes']} B, {sizes['credits']} credits of {sizes['slot_bytes']} B;"
        f" messages of {message} B"
    )
    reference = MpiAlltoall(
        program=bench_program("mpi_alltoall", arguments.engine),
        seconds=arguments.seconds,
        warm_up=arguments.warm_up,
        ranks=arguments.nodes,
        message=message,
        send_set=source_bytes(cache, arguments.nodes),
        receive_set=int(sizes["credits"]) * int(sizes["slot_bytes"]),
        transport=_BTL[transport],
    )
    if message_rate:
        reference = replace(reference, quantity="messages_per_s_without_self")
    what = "MFPs that cross processes, headers verified" if message_rate else "goodput without self"
    if scheme == "views":
        what += ", not copied"
    return session.compare(
        f"{transport} {scheme}, {mfp} MFPs, {what}, against MPI_Alltoall",
        [Entrant("incast", subject), Entrant("MPI_Alltoall", reference)],
        unit=MESSAGES if message_rate else GIGABYTES,
    )
