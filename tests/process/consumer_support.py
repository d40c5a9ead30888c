"""What the tests of consumers have in common."""

from typing import Any

RUN = 7  # run.seed, which is the number of the run too
SETTINGS = {
    "run.nodes": 2,
    "run.seed": RUN,
    "run.duration": "1h",
    "run.warm_up": "100ms",
    "run.sample_interval": "100ms",
    "run.drain_deadline": "60s",
    "source.fill": "generated",
    "source.fragment_size": "1KiB",
    "protocol.mfp_size": "16KiB",
    "sink.kind": "consumer",
}


def check_counts(result: dict[str, Any]) -> None:
    """Every built MEP went one way."""
    consumers = result["consumers"]
    assert consumers["taken_meps"] + consumers["dropped_meps"] == result["accounting"]["meps_committed"]
    assert consumers["done_meps"] + consumers["abandoned_meps"] + consumers["held_meps"] == consumers["taken_meps"]
