from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from everstep.trainer.data.channel import Channel
from everstep.trainer.data.halt import DataError, Halt, Halted
from everstep.trainer.data.lookahead import Lookahead
from everstep.trainer.data.timing import StageClock


def test_first_in_is_first_out() -> None:
    channel: Channel[int] = Channel(Halt(), capacity=3)
    clock = StageClock()
    for item in range(3):
        channel.put(item, clock)
    assert [channel.get(clock) for _ in range(3)] == [0, 1, 2]


def test_a_full_channel_holds_its_producer_until_there_is_room() -> None:
    channel: Channel[int] = Channel(Halt(), capacity=2)
    done = threading.Event()

    def produce() -> None:
        for item in range(3):
            channel.put(item, StageClock())
        done.set()

    producer = threading.Thread(target=produce)
    producer.start()
    assert not done.wait(0.3)
    assert len(channel) == 2
    assert channel.get(StageClock()) == 0
    assert done.wait(10)
    producer.join(10)


def test_the_end_wakes_both_sides_at_once() -> None:
    halt = Halt()
    full: Channel[int] = Channel(halt, capacity=1)
    full.put(1, StageClock())
    empty: Channel[int] = Channel(halt, capacity=1)
    seen: list[str] = []

    def produce() -> None:
        with pytest.raises(Halted):
            full.put(2, StageClock())
        seen.append("producer")

    def consume() -> None:
        with pytest.raises(Halted):
            empty.get(StageClock())
        seen.append("consumer")

    threads = [threading.Thread(target=each) for each in (produce, consume)]
    for thread in threads:
        thread.start()
    halt.stop()
    for thread in threads:
        thread.join(10)
    assert sorted(seen) == ["consumer", "producer"]
    with pytest.raises(Halted):
        full.get(StageClock())


def test_a_wait_for_nothing_ends() -> None:
    with pytest.raises(TimeoutError):
        Channel[int](Halt(), capacity=1).get(StageClock(), 0.05)


def test_only_the_first_error_counts() -> None:
    halt = Halt()
    halt.stop(DataError("first", mend="x"))
    halt.stop(DataError("second", mend="y"))
    assert str(halt.error) == "first; x"


def test_a_lookahead_gives_results_in_the_order_of_the_plan_and_takes_no_more_than_it_may() -> None:
    taken: list[int] = []

    def plan() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    ahead: Lookahead[int, str] = Lookahead(plan(), Halt(), capacity=3)
    clock = StageClock()
    tickets = [ahead.take(clock) for _ in range(3)]
    for ticket, number in reversed(tickets):
        ahead.fill(ticket, f"result {number}")
    assert [ahead.get(clock) for _ in range(3)] == ["result 0", "result 1", "result 2"]
    assert taken == [0, 1, 2]


def test_a_full_lookahead_holds_its_readers() -> None:
    halt = Halt()
    ahead: Lookahead[int, int] = Lookahead(iter(range(100)), halt, capacity=1)
    ahead.take(StageClock())

    def take() -> None:
        with pytest.raises(Halted):
            ahead.take(StageClock())

    reader = threading.Thread(target=take)
    reader.start()
    reader.join(0.3)
    assert reader.is_alive()
    assert ahead.num_taken == 1
    halt.stop()
    reader.join(10)
    assert not reader.is_alive()
