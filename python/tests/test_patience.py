"""Deadlines of a process that may itself be stopped."""

from incast.base.patience import LONGEST_LOOK_S, Patience


def test_a_pause_costs_one_look_at_most() -> None:
    now = 5.0
    patience = Patience(3.0, lambda: now)
    assert not patience.is_over()
    now += 1000
    assert not patience.is_over()
    now += 3.0 - LONGEST_LOOK_S
    assert not patience.is_over()
    now += 0.1
    assert patience.is_over()
