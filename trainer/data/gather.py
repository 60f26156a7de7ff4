"""A rank's windows of a global batch, picked out of shards that the prefetch brings and the cache holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from everstep.trainer.data.batch import Batch
from everstep.trainer.data.cache import ShardCache
from everstep.trainer.data.order import DataOrder
from everstep.trainer.data.prefetch import Arrival
from everstep.trainer.data.shard import Shard


def windows_of(content: bytes | NDArray[np.uint8], *, context: int) -> NDArray[np.uint8]:
    """All windows of a shard without a copy: [windows, context + 1], each overlapping the next by one byte."""
    text = np.frombuffer(content, dtype=np.uint8)
    if len(text) <= context:
        return np.empty((0, context + 1), dtype=np.uint8)
    return np.lib.stride_tricks.sliding_window_view(text, context + 1)[::context]


class Gatherer:
    """Used by one thread. `arrive` waits for the next prefetched shard; `fetch` reads one that is missing."""

    def __init__(
        self,
        order: DataOrder,
        cache: ShardCache,
        shards: tuple[Shard, ...],
        *,
        arrive: Callable[[], Arrival],
        fetch: Callable[[Shard], bytes],
    ) -> None:
        self._order = order
        self._cache = cache
        self._shards = shards
        self._arrive = arrive
        self._fetch = fetch
        self._arrived: set[tuple[int, int]] = set()
        self._epoch = -1
        self.num_late = 0

    def gather(self, batch: Batch, windows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The bytes of some of a batch's windows: [len(windows), context + 1], in their order."""
        self._turn(batch.epoch)
        rows = np.empty((len(windows), self._order.context + 1), dtype=np.uint8)
        numbers, places = self._order.locate(windows)
        # not np.unique, which loads numpy.ma at its first call: 10 ms of a restart
        here_first = sorted(set(numbers.tolist()), key=lambda number: (batch.epoch, number) not in self._arrived)
        for number in here_first:
            mine = numbers == number
            rows[mine] = windows_of(self._content(batch.epoch, number), context=self._order.context)[places[mine]]
        return rows

    def _turn(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._arrived = {visit for visit in self._arrived if visit[0] >= epoch}
            self._epoch = epoch

    def _content(self, epoch: int, number: int) -> bytes:
        while (epoch, number) not in self._arrived:
            arrival = self._arrive()
            self._arrived.add((arrival.epoch, arrival.number))
            if arrival.content is not None:
                self._cache.put(self._shards[arrival.number], arrival.content)
        shard = self._shards[number]
        content = self._cache.get(shard)
        if content is None:
            self.num_late += 1
            content = self._fetch(shard)
            self._cache.put(shard, content)
        return content
