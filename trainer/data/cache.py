"""Shards near at hand: in memory up to a bound, the least recently used ones on disk, the rest forgotten."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from everstep.trainer.data.shard import Shard
from everstep.trainer.data.spill import SpillFolder


@dataclass(slots=True, kw_only=True)
class CacheCounts:
    memory_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    evictions: int = 0


class ShardCache:
    """Used by one thread; `holds` by any. The newest shard is always held, also when it is larger than the bound."""

    def __init__(self, *, max_bytes: int, spill: SpillFolder | None = None) -> None:
        self._max_bytes = max_bytes
        self._spill = spill
        self._held: OrderedDict[Shard, bytes] = OrderedDict()
        self.num_bytes = 0
        self.counts = CacheCounts()

    def holds(self, shard: Shard) -> bool:
        """A hint: a moment later it may have been evicted."""
        return shard in self._held or (self._spill is not None and self._spill.holds(shard))

    def get(self, shard: Shard) -> bytes | None:
        content = self._held.get(shard)
        if content is not None:
            self._held.move_to_end(shard)
            self.counts.memory_hits += 1
            return content
        content = self._spill.get(shard) if self._spill is not None else None
        if content is None:
            self.counts.misses += 1
            return None
        self.counts.disk_hits += 1
        self.put(shard, content)
        return content

    def put(self, shard: Shard, content: bytes) -> None:
        if shard in self._held:
            self._held.move_to_end(shard)
            return
        self._held[shard] = content
        self.num_bytes += len(content)
        while self.num_bytes > self._max_bytes and len(self._held) > 1:
            self._evict()

    def _evict(self) -> None:
        shard, content = self._held.popitem(last=False)
        self.num_bytes -= len(content)
        self.counts.evictions += 1
        if self._spill is not None:
            self._spill.put(shard, content)
