"""The transports to test with, by what they are: their names are those of the engine's list."""

from incast.engine.transports import chosen_across, chosen_here, one_thread, simulated, transports

ONE_THREAD = one_thread()
SHARED_MEMORY = chosen_here()
SOCKETS = chosen_across()
SIMULATED = simulated()
NAMES = [each.name for each in transports()]
# No trait tells these from others: they are the ones that are left, in the order of the list.
RAPIDIO, DATAGRAMS, VERBS, OFI, UCX, MPI, RDS = (
    name for name in NAMES if name not in (ONE_THREAD, SHARED_MEMORY, SOCKETS, SIMULATED)
)
