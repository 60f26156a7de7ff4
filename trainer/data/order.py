"""Batch index to sample ids, the same on every rank and for every number of ranks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from everstep.core.errors import ConfigError
from everstep.trainer.data.batch import Batch
from everstep.trainer.data.epoch import Epoch
from everstep.trainer.data.position import Position


class Text(Protocol):
    """What an order is drawn over: the shards' sizes in bytes, in the order of sample ids."""

    @property
    def sizes(self) -> Sequence[int]: ...

    @property
    def fingerprint(self) -> int: ...


class DataOrder:
    """Each epoch is drawn from (seed, epoch) with `mix` shards mixed at once; incomplete batches are dropped.

    A window is `context` bytes and the one that follows; windows do not cross shards. Safe to use from several threads.
    """

    def __init__(self, text: Text, *, context: int, batch_size: int, seed: int, mix: int = 1) -> None:
        """Raises `ConfigError` when the text does not fill a batch."""
        self.context = context
        self.fingerprint = text.fingerprint
        self.shuffle = zlib.crc32(f"{seed}:{context}:{batch_size}:{mix if len(text.sizes) > 1 else 1}".encode())
        self._batch_size = batch_size
        self._seed = seed
        self._mix = mix
        counts = np.maximum(np.array(text.sizes, dtype=np.int64) - 1, 0) // context
        self._first_ids = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        if self.num_windows < batch_size:
            raise ConfigError(
                f"the corpus holds {self.num_windows} windows of {context} bytes and a batch needs {batch_size}",
                mend="raise data.max_bytes, or point data.directory or data.shards.url at more text",
            )
        self._epochs: dict[int, Epoch] = {}

    @property
    def num_windows(self) -> int:
        return int(self._first_ids[-1])

    @property
    def batches_per_epoch(self) -> int:
        return self.num_windows // self._batch_size

    def batch(self, index: int) -> Batch:
        epoch, at = divmod(index, self.batches_per_epoch)
        start = at * self._batch_size
        windows = self._epoch(epoch).windows(start, start + self._batch_size)
        return Batch(index=index, epoch=epoch, windows=windows)

    def next(self, position: Position, skip: frozenset[int]) -> tuple[Batch, tuple[int, ...]]:
        """The batch to train on at a position and the indices left out before it."""
        index = position.next_batch
        left_out = []
        while index in skip:
            left_out.append(index)
            index += 1
        return self.batch(index), tuple(left_out)

    def visits(self, index: int) -> Iterator[tuple[int, int]]:
        """(epoch, shard number) in the order in which the batches from `index` on need them, without an end."""
        epoch, at = divmod(index, self.batches_per_epoch)
        used = self.batches_per_epoch * self._batch_size
        place = at * self._batch_size
        while True:
            yield from ((epoch, shard) for shard in self._epoch(epoch).shards_from(place, used))
            epoch, place = epoch + 1, 0

    def locate(self, windows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The shard number of each window and its number within that shard."""
        shards = np.searchsorted(self._first_ids, windows, side="right") - 1
        return shards, windows - self._first_ids[shards]

    def _epoch(self, number: int) -> Epoch:
        known = self._epochs
        if number not in known:
            made = Epoch(number, first_ids=self._first_ids, mix=self._mix, seed=self._seed)
            self._epochs = known = dict([*known.items()][-2:]) | {number: made}
        return known[number]
