"""First stage: shards are read before they are needed, several at a time, those of the next epoch too."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from everstep.trainer.data.halt import DataError, Halt
from everstep.trainer.data.lookahead import Lookahead
from everstep.trainer.data.shard import Shard
from everstep.trainer.data.stage import StageThread
from everstep.trainer.data.timing import StageClock, StageTiming

_LOGGER = logging.getLogger("everstep.trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A shard for an epoch; no `content` when the cache held it, so that it was not read, or when reading it failed."""

    epoch: int
    number: int
    content: bytes | None


class Prefetcher:
    """`num_threads` readers along `visits` of (epoch, shard number); at most `ahead` shards wait to be got.

    A shard that still waits for an earlier epoch (the window is longer than an epoch) is not read a second time. A
    failed read is left to be repeated when the shard is due: until then the store may be back, and training goes on.
    """

    def __init__(
        self,
        visits: Iterator[tuple[int, int]],
        shards: tuple[Shard, ...],
        halt: Halt,
        *,
        read: Callable[[Shard], bytes],
        holds: Callable[[Shard], bool],
        ahead: int,
        num_threads: int,
    ) -> None:
        self._shards = shards
        self._read = read
        self._holds = holds
        self._lock = threading.Lock()
        self._waiting: dict[int, list[bytes]] = {}
        self._last: Arrival | None = None
        self._window: Lookahead[tuple[int, int], Arrival] = Lookahead(visits, halt, capacity=ahead)
        self._clocks = [StageClock() for _ in range(min(num_threads, ahead))]
        self.threads = [StageThread("prefetch", self._step, clock, halt) for clock in self._clocks]

    @property
    def num_taken(self) -> int:
        """Visits that a reader has begun."""
        return self._window.num_taken

    def get(self, clock: StageClock) -> Arrival:
        """For one thread, which keeps an arrival's content before it comes for the next."""
        self._forget(self._last)
        self._last = self._window.get(clock)
        return self._last

    def read_next(self) -> None:
        """One step of a reader, on the caller's thread."""
        with self._clocks[0].running():
            self._step(self._clocks[0])

    def timing(self) -> StageTiming:
        return sum((clock.timing() for clock in self._clocks), StageTiming())

    def _step(self, clock: StageClock) -> None:
        ticket, (epoch, number) = self._window.take(clock)
        content = self._content(number)
        self._window.fill(ticket, Arrival(epoch=epoch, number=number, content=content))
        clock.count()

    def _content(self, number: int) -> bytes | None:
        shard = self._shards[number]
        with self._lock:
            waiting = self._waiting.get(number)
            if waiting:
                waiting.append(waiting[0])
                return waiting[0]
        if self._holds(shard):
            return None
        try:
            content = self._read(shard)
        except DataError as error:
            _LOGGER.warning("%s; it is read again when it is due", error.problem)
            return None
        with self._lock:
            self._waiting.setdefault(number, []).append(content)
        return content

    def _forget(self, arrival: Arrival | None) -> None:
        if arrival is None or arrival.content is None:
            return
        with self._lock:
            self._waiting[arrival.number].pop()
            if not self._waiting[arrival.number]:
                del self._waiting[arrival.number]
