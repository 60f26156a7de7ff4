"""Real text in a deterministic order: windows of a byte corpus, shuffled per epoch, addressed by global batch index."""

from __future__ import annotations

import hashlib
import os
import sysconfig
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from everstep.core.errors import ConfigError
from everstep.trainer.config import DataConfig

HASH_BITS = 52
"""A rolling hash of this width survives a float64 in the rank record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """`fingerprint` tells a resumed run whether it reads the same text."""

    text: NDArray[np.uint8]
    fingerprint: int


def read_corpus(config: DataConfig) -> Corpus:
    """Raises `ConfigError` when there is no text at the configured place."""
    root = config.directory or Path(sysconfig.get_path("stdlib"))
    pieces: list[bytes] = []
    left = config.max_bytes
    for path in _sources(root):
        try:
            piece = path.read_bytes()[:left]
        except OSError as error:
            raise ConfigError(f"cannot read {path} ({error.strerror})", mend="check its permissions") from error
        pieces.append(piece)
        left -= len(piece)
        if left <= 0:
            break
    joined = b"".join(pieces)
    if not joined:
        raise ConfigError(f"there is no *.py text below {root}", mend="set data.directory to a folder that has some")
    return Corpus(text=np.frombuffer(joined, dtype=np.uint8), fingerprint=zlib.crc32(joined))


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in {"site-packages", "dist-packages", "test"})
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a run stands in its data. `next_batch` is the next global index to look at, before skipping."""

    next_batch: int = 0
    sample_hash: int = 0
    skipped: tuple[int, ...] = ()

    def passed(self, batch: Batch, skipped: Iterable[int]) -> Position:
        """The position after a batch was trained on; `skipped` were left out on the way to it."""
        return replace(
            self,
            next_batch=batch.index + 1,
            sample_hash=batch.chain(self.sample_hash),
            skipped=(*self.skipped, *skipped),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A global batch: `windows` are the sample ids of all ranks, in rank order."""

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


class DataOrder:
    """Batch index to sample ids: each epoch is a permutation drawn from (seed, epoch), incomplete batches dropped."""

    def __init__(self, corpus: Corpus, *, context: int, batch_size: int, seed: int) -> None:
        self._corpus = corpus
        self._context = context
        self._batch_size = batch_size
        self._seed = seed
        self._num_windows = (len(corpus.text) - 1) // context
        if self._num_windows < batch_size:
            raise ConfigError(
                f"the corpus holds {self._num_windows} windows of {context} bytes and a batch needs {batch_size}",
                mend="raise data.max_bytes or point data.directory at more text",
            )
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @property
    def fingerprint(self) -> int:
        return self._corpus.fingerprint

    @property
    def batches_per_epoch(self) -> int:
        return self._num_windows // self._batch_size

    def batch(self, index: int) -> Batch:
        epoch, at = divmod(index, self.batches_per_epoch)
        if epoch != self._epoch:
            generator = np.random.Generator(np.random.Philox(key=[self._seed, epoch]))
            self._order = generator.permutation(self._num_windows)
            self._epoch = epoch
        start = at * self._batch_size
        return Batch(index=index, epoch=epoch, windows=self._order[start : start + self._batch_size])

    def next(self, position: Position, skip: frozenset[int]) -> tuple[Batch, tuple[int, ...]]:
        """The batch to train on at a position and the indices left out before it."""
        index = position.next_batch
        left_out = []
        while index in skip:
            left_out.append(index)
            index += 1
        return self.batch(index), tuple(left_out)

    def tokens(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Inputs and targets of windows: shape [windows, context + 1]."""
        offsets = windows[:, None] * self._context + np.arange(self._context + 1)[None, :]
        picked: NDArray[np.int64] = self._corpus.text[offsets].astype(np.int64)
        return picked
