"""The batches that the service has not taken yet: in order, bounded in samples, the oldest dropped and counted."""

from __future__ import annotations

from collections import deque
from itertools import islice

from everstep.collector.encoding import Batch


class PushBuffer:
    def __init__(self, max_samples: int) -> None:
        self._max_samples = max_samples
        self._batches: deque[Batch] = deque()
        self.num_samples = 0
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)
        self.num_samples += batch.num_samples
        while self.num_samples > self._max_samples and len(self._batches) > 1:
            self.num_dropped += self.take_oldest().num_samples

    def take_oldest(self) -> Batch:
        batch = self._batches.popleft()
        self.num_samples -= batch.num_samples
        return batch

    def oldest(self, num_batches: int) -> tuple[Batch, ...]:
        """Up to that many of the oldest, left in place until `discard` says that they have arrived."""
        return tuple(islice(self._batches, num_batches))

    def discard(self, num_batches: int) -> None:
        for _ in range(num_batches):
            self.take_oldest()
