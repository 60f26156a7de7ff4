"""Where a run stands in its data; a few numbers that travel in every checkpoint and make a resume exact."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from everstep.trainer.data.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """`next_batch` is the next global index to look at, before skipping; `epoch` is that of the last batch.

    Permutations are drawn anew from (seed, epoch), so the state of the shuffle is `shuffle`: a digest of all that the
    order is drawn from (0: not known).
    """

    next_batch: int = 0
    sample_hash: int = 0
    skipped: tuple[int, ...] = ()
    epoch: int = 0
    shuffle: int = 0

    def passed(self, batch: Batch, skipped: Iterable[int]) -> Position:
        """The position after a batch was trained on; `skipped` were left out on the way to it."""
        return replace(
            self,
            next_batch=batch.index + 1,
            sample_hash=batch.chain(self.sample_hash),
            skipped=(*self.skipped, *skipped),
            epoch=batch.epoch,
        )
