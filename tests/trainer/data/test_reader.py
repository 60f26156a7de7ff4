from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from everstep.trainer.data.halt import DataError, Halt, Halted
from everstep.trainer.data.reader import ShardReader
from everstep.trainer.data.shard import Shard

SHARD = Shard(name="a", size=3)


class Flaky:
    """Gives its answers in turn; an exception is raised, None hangs until `release`."""

    def __init__(self, *answers: bytes | Exception | None) -> None:
        self._answers = list(answers)
        self.release = threading.Event()

    def shards(self) -> Sequence[Shard]:
        return [SHARD]

    def read(self, shard: Shard) -> bytes:
        answer = self._answers.pop(0)
        if answer is None:
            self.release.wait(30)
            return b"old"
        if isinstance(answer, Exception):
            raise answer
        return answer


def _reader(store: Flaky, *, attempts: int = 3, timeout_s: float = 5.0) -> ShardReader:
    return ShardReader(store, Halt(), attempts=attempts, timeout_s=timeout_s)


def _let_go(store: Flaky) -> None:
    store.release.set()
    for thread in threading.enumerate():
        if thread.name == "data-read-a":
            thread.join(10)


def test_a_passing_fault_is_repeated() -> None:
    reader = _reader(Flaky(ConnectionError("reset"), ValueError("odd client error"), b"abc"))
    assert reader.read(SHARD) == b"abc"
    assert (reader.num_reads, reader.num_retries) == (3, 2)


def test_a_torn_answer_is_repeated_and_named_when_it_stays() -> None:
    assert _reader(Flaky(b"ab", b"abc")).read(SHARD) == b"abc"
    with pytest.raises(
        DataError, match=r"cannot read shard a \(it has 2 bytes and was listed with 3, 2 attempts\); check"
    ):
        _reader(Flaky(b"ab", b"ab"), attempts=2).read(SHARD)


def test_what_is_gone_or_forbidden_is_not_repeated() -> None:
    reader = _reader(Flaky(PermissionError(13, "Permission denied")))
    with pytest.raises(DataError, match=r"cannot read shard a .*Permission denied.*restore it"):
        reader.read(SHARD)
    assert reader.num_reads == 1


def test_a_read_that_hangs_is_given_up_and_its_late_answer_dropped() -> None:
    store = Flaky(None, b"new")
    reader = _reader(store, timeout_s=0.2)
    assert reader.read(SHARD) == b"new"
    assert reader.num_lost == 1
    _let_go(store)
    assert reader.num_lost == 0


def test_a_store_that_always_hangs_is_one_error() -> None:
    store = Flaky(None, None)
    with pytest.raises(DataError, match=r"no answer for 0\.1 s, 2 attempts.*data\.prefetch\.timeout_s"):
        _reader(store, attempts=2, timeout_s=0.1).read(SHARD)
    _let_go(store)


def test_the_end_of_the_pipeline_ends_a_hanging_read() -> None:
    store, halt = Flaky(None), Halt()
    reader = ShardReader(store, halt, attempts=2, timeout_s=60)
    threading.Timer(0.1, halt.stop).start()
    with pytest.raises(Halted):
        reader.read(SHARD)
    _let_go(store)
