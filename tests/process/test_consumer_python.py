"""The Python interface of consumers: what keeps an event, what is refused, what is left behind."""

import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from consumer_support import SETTINGS, check_counts
from incast.consumer import (
    Consumer,
    ConsumerError,
    Consumers,
    Event,
    NoBuilderError,
    _consumer,
)
from support import Start, process_state, wait_until
from transports import ONE_THREAD, SHARED_MEMORY


def test_an_event_is_held_as_long_as_anything_of_it(start: Start, name: str) -> None:
    run = start({**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name, "run.nodes": 1, "sink.window": 1})
    consumer = Consumer(name, 0, timeout=60)
    event = consumer.next(60)
    assert event is not None
    first = event.serial
    array = event.mfp(0)
    assert isinstance(array, np.ndarray)
    assert not array.flags.writeable
    part = array[2:4]
    del event, array
    assert consumer.next(0.2) is None, "it may have one at a time"
    del part
    event = consumer.next(60)
    assert event is not None
    assert event.serial == first + 1
    assert event.release()
    for event in consumer:  # which gives back what the loop had
        kept = [mfp for _, mfp in event.mfps()]
        break
    following = consumer.next(60)
    assert following is not None
    assert following.serial == first + 3
    with following:
        pass
    for number, event in enumerate(consumer):
        assert event.serial == first + 4 + number
        if number == 3:
            assert event.release(), "by the loop's body"
        if number == 20:
            run.process.send_signal(signal.SIGINT)
    consumer.close()
    del consumer, event, following
    assert isinstance(kept[0], np.ndarray)
    assert int(kept[0].sum()) >= 0, "the memory is there, whatever it shows"
    assert run.finish(90) == 0, run.story()
    result = run.result()
    check_counts(result)
    assert result["consumers"]["done_meps"] == result["accounting"]["meps_committed"]


def use(event: Event) -> int:
    """Everything that there is of an event."""
    looked = sum(len(mfp) for _, mfp in event.mfps() if mfp is not None)
    packet = event.mfp(0)
    assert packet is not None
    assert event.parse(0) is not None
    assert (event.flags, event.sources.tolist(), event.intact, event.missing_sources) == ({}, [0, 1], True, 0)
    assert (event.redelivered, event.repeated, event.attempt) == (False, False, 1)
    assert event.n_events > 0
    assert event.goodput_bytes < looked
    with pytest.raises(KeyError):
        event.mfp(77)
    return looked + len(packet)


def test_verdicts_are_counted(start: Start, name: str) -> None:
    run = start({**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name, "run.nodes": 1})
    accepted = rejected = 0
    with Consumer(name, 0, timeout=60) as consumer:
        for event, keep in ((consumer.next(60), keep) for keep in (0, 1, 5)):
            assert event is not None
            for wrong in (-1, event.n_events + 1):
                with pytest.raises(ValueError, match="allowed: 0 to the"):
                    event.judge(wrong)
            assert event.judge(keep)
            with pytest.raises(ValueError, match="given back before"):
                event.judge(keep)
            assert event.release(), "which does nothing any more"
            accepted += keep
            rejected += event.n_events - keep
        run.process.send_signal(signal.SIGINT)
        for event in consumer:  # in a loop, too
            assert event.judge(event.n_events)
            accepted += event.n_events
    assert run.finish(90) == 0, run.story()
    consumers = run.result()["consumers"]
    check_counts(run.result())
    assert (consumers["accepted_events"], consumers["rejected_events"]) == (accepted, rejected)
    assert consumers["judged_meps"] == consumers["done_meps"]


def test_events_leave_nothing_behind(start: Start, name: str) -> None:
    run = start({**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name})
    consumers = Consumers(name, [0, 1], timeout=60)

    def take(many: int) -> None:
        for number, event in enumerate(consumers):
            use(event)
            if number == many:
                break
        for _ in range(many):
            event = consumers.next(60)
            assert event is not None
            use(event)  # and drops it
        with pytest.raises(NoBuilderError):
            Consumer(name, 77, timeout=0)

    take(200)  # whatever is made once
    gc.collect()
    before = sys.getallocatedblocks()
    take(2000)
    gc.collect()
    # Some are the lines that the engine said meanwhile.
    assert sys.getallocatedblocks() - before < 1000, "something is left of 4000 events"
    run.process.send_signal(signal.SIGINT)
    for _ in consumers:
        pass
    consumers.close()
    assert run.finish(90) == 0, run.story()


def test_a_signal_ends_a_wait_if_its_handler_says_so(start: Start, name: str) -> None:
    """And only then: another one goes on waiting."""
    run = start({**SETTINGS, "transport.name": SHARED_MEMORY, "sink.name": name, "run.nodes": 1, "sink.window": 1})
    consumer = Consumer(name, 0, timeout=60)
    held = consumer.next(60)
    assert held is not None
    came = []

    def handle(number: int, _frame: object) -> None:
        came.append(number)
        if len(came) == 2:
            raise InterruptedError("enough")

    before = signal.signal(signal.SIGUSR1, handle)
    sender = threading.Thread(target=lambda: [signal_after(count) for count in range(2)])

    def signal_after(count: int) -> None:
        wait_until(lambda: len(came) == count and process_state(os.getpid()) == "S", "this process to wait")
        os.kill(os.getpid(), signal.SIGUSR1)

    try:
        sender.start()
        with pytest.raises(InterruptedError):
            consumer.next()
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    held.release()
    end_of = consumer.next(60)
    assert end_of is not None
    end_of.release()
    run.process.send_signal(signal.SIGINT)
    for _ in consumer:
        pass
    assert run.finish(90) == 0, run.story()


def test_what_is_no_event_or_handle_is_refused(start: Start, name: str) -> None:
    run = start({**SETTINGS, "transport.name": ONE_THREAD, "sink.name": name, "run.nodes": 1})
    consumer = Consumer(name, 0, timeout=60)
    with pytest.raises(TypeError, match="derived from Event"):
        consumer._handle.next(int, 0)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="cannot create"):
        Event()
    with pytest.raises(TypeError, match="Handle"):
        _consumer.Group(Event, [(consumer, consumer._memory)])  # type: ignore[list-item]
    group = _consumer.Group(Event, [(consumer._handle, consumer._memory)])
    with pytest.raises(TypeError, match="expected a Handle"):
        group.remove(consumer)  # type: ignore[arg-type]
    with pytest.raises(ConsumerError, match="bad argument"):
        _consumer.Group(Event, [(consumer._handle, consumer._memory)] * 2)
    with pytest.raises(OverflowError):
        group.next(1 << 40)
    consumer.close()
    run.process.kill()


def test_a_missing_module_is_named() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import incast.consumer"],
        env={**os.environ, "INCAST_CONSUMER_MODULE": "nowhere.so"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert found.returncode == 1
    assert "nowhere.so is not there: build the target consumer_python" in found.stderr.splitlines()[-1]
