"""Table 2 of [S5]: RDMA read and write between two of its hosts, QLogic QDR 4x adapters, the tools of OFED 1.5.2.

The paper names no tool and no sizes. Columns and words are those of perftest: latencies of a write are half a round
trip, those of a read a whole one, `typical` is the median, and its own sizes are 64 KiB for bandwidth and 2 B for
latency. Rates stand here as printed, with MB of 10^6 bytes; perftest divides by 2^20, which would be 4.9 % more.
"""

TABLE_2_SOURCE = "J. Phys. Conf. Ser. 331 022008 (2011), table 2"
# As printed: bandwidth average and peak in MB/s; latency min, typical and max in microseconds.
PRINTED = {"read": (2081.0, 2248.0, 8.88, 10.13, 135.6), "write": (2581.0, 2589.0, 4.74, 5.03, 67.49)}


def _in_units(mean: float, peak: float, least: float, typical: float, most: float) -> dict[str, float]:
    return {"mean": mean * 1e6, "peak": peak * 1e6, "min": least * 1e3, "typical": typical * 1e3, "max": most * 1e3}


# Bytes per second, and nanoseconds.
TABLE_2: dict[str, dict[str, float]] = {operation: _in_units(*row) for operation, row in PRINTED.items()}
