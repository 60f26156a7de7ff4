"""A global batch: which samples all ranks train on in one step, and each rank's share of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HASH_BITS = 52
"""A rolling hash of this width survives a float64 in the rank record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`windows` are the sample ids of all ranks, in rank order."""

    index: int
    epoch: int
    windows: NDArray[np.int64]

    def chain(self, previous: int) -> int:
        """The rolling hash after this batch; equal on every rank and independent of the world size."""
        head = f"{previous}:{self.epoch}:".encode()
        digest = hashlib.blake2b(head + self.windows.astype("<i8").tobytes(), digest_size=8).digest()
        return int.from_bytes(digest, "little") & ((1 << HASH_BITS) - 1)

    def slice(self, rank: int, world_size: int) -> NDArray[np.int64]:
        """This rank's windows; sizes differ by at most one."""
        return np.array_split(self.windows, world_size)[rank]
