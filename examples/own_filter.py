"""A filter of your own between the two stages of push-pull: it sees the first sources of a packet, and decides.

    cd examples
    incast run --protocol push-pull --size-distribution lognormal --filter python:own_filter:wanted

Where it says no, the other sources are not read out: they save the network's time. docs/running.md, "Filters".
"""

from incast.filter import FirstStage

MEAN_BYTES = 1024  # of a fragment: source.fragment_size


def wanted(packet: FirstStage) -> bool:
    """Packets whose largest fragment is half as large again as the mean, at least."""
    return any(int(mfp.sizes.max()) >= 1.5 * MEAN_BYTES for mfp in packet.mfps().values())
