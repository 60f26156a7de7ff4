"""One pass over the data: shards in a drawn order, cut into blocks, the windows of each block mixed.

Only the shards of a block are needed at once, so that a rank can hold its data while the whole does not fit. With one
shard the order is a plain permutation of its windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def _permutation(seed: int, epoch: int, *, length: int, counter: tuple[int, int]) -> NDArray[np.int64]:
    """Philox (Salmon et al., 2011) is counter-based: each (seed, epoch, counter) has a stream of its own."""
    generator = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, *counter]))
    return generator.permutation(length)


class Epoch:
    """Immutable once made, but for the newest two blocks that it remembers; safe to read from several threads."""

    def __init__(self, number: int, *, first_ids: NDArray[np.int64], mix: int, seed: int) -> None:
        """`first_ids` [shards + 1] are the ids of each shard's first window and the number of all windows."""
        self.number = number
        self._seed = seed
        self._first_ids = first_ids
        counts = np.diff(first_ids)
        order = _permutation(seed, number, length=len(counts), counter=(1, 0))
        order = order[counts[order] > 0]
        self.blocks: Sequence[NDArray[np.int64]] = [order[at : at + mix] for at in range(0, len(order), mix)]
        self.ends = np.cumsum([int(counts[block].sum()) for block in self.blocks])
        self._mixed: dict[int, NDArray[np.int64]] = {}

    def windows(self, start: int, stop: int) -> NDArray[np.int64]:
        """The window ids at places `start` to `stop` of this epoch."""
        pieces = []
        for block in range(self.block_at(start), len(self.blocks)):
            begin = int(self.ends[block - 1]) if block else 0
            if begin >= stop:
                break
            pieces.append(self._mix(block)[max(start - begin, 0) : stop - begin])
        return np.concatenate(pieces)

    def block_at(self, place: int) -> int:
        return int(np.searchsorted(self.ends, place, side="right"))

    def shards_from(self, place: int, stop: int) -> Iterator[int]:
        """The shards that places `place` to `stop` need, block by block."""
        for block in range(self.block_at(place), self.block_at(stop - 1) + 1):
            yield from map(int, self.blocks[block])

    def _mix(self, block: int) -> NDArray[np.int64]:
        known = self._mixed
        if block not in known:
            shards = self.blocks[block]
            ids = np.concatenate([np.arange(self._first_ids[each], self._first_ids[each + 1]) for each in shards])
            order = _permutation(self._seed, self.number, length=len(ids), counter=(0, block))
            self._mixed = known = dict([*known.items()][-1:]) | {block: ids[order]}
        return known[block]
