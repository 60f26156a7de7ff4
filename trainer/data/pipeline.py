"""Four stages from the store to the training step, each with its own bounded queue and its own clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType

import torch
from torch import Tensor

from everstep.trainer.config import DataConfig
from everstep.trainer.data.batch import Batch
from everstep.trainer.data.cache import CacheCounts, ShardCache
from everstep.trainer.data.channel import Channel
from everstep.trainer.data.gather import Gatherer
from everstep.trainer.data.halt import DataError, Halt, Halted
from everstep.trainer.data.lane import Lane, lane_to
from everstep.trainer.data.order import DataOrder
from everstep.trainer.data.position import Position
from everstep.trainer.data.prefetch import Arrival, Prefetcher
from everstep.trainer.data.preprocess import SpanMask, pack, shift
from everstep.trainer.data.reader import ShardReader
from everstep.trainer.data.source import Source
from everstep.trainer.data.spill import SpillFolder
from everstep.trainer.data.stage import StageThread
from everstep.trainer.data.timing import Activity, StageClock, StageTiming

STOP_S = 5.0


class Stage(StrEnum):
    """In the order of the way; `TRAIN` is the consumer, whose input wait is the data wait of the steps."""

    PREFETCH = "prefetch"
    CACHE = "cache"
    TRANSFER = "transfer"
    PREPROCESS = "preprocess"
    TRAIN = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Which rank of how many reads, and from which position on."""

    rank: int = 0
    world_size: int = 1
    position: Position = field(default_factory=Position)
    skip: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A rank's part of a batch on its way: bytes, and where spans are to be hidden."""

    index: int
    bytes: Tensor
    starts: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A rank's part of the global batch `index`: inputs and targets, each [n, context], on the device."""

    index: int
    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marked:
    sample: Sample
    mark: torch.cuda.Event | None


class DataPipeline:
    """Made anywhere, also before a fork; `start` starts the threads and `stop` ends them. `next` is for one thread.

    A source that is in memory already has no wait to hide: without a device to feed, its batches take the same way on
    the caller's thread, which saves a restarted worker the start of the threads.
    """

    def __init__(
        self, source: Source, order: DataOrder, config: DataConfig, share: Share, *, device: torch.device, seed: int = 0
    ) -> None:
        self._order = order
        self._share = share
        self._batch_size = config.batch_size
        self._next_index = share.position.next_batch
        self._halt = halt = Halt()
        self._lane: Lane = lane_to(device)
        self._mask = SpanMask(config.mask, context=order.context, seed=seed) if config.mask.ratio else None
        self._reader = ShardReader(
            source.store, halt, attempts=config.prefetch.attempts, timeout_s=config.prefetch.timeout_s
        )
        self._inline = source.resident and device.type == "cpu"
        read = source.store.read if source.resident else self._reader.read
        self._cache = _cache(config, share.rank)
        shards = source.catalog.shards
        self._prefetcher = Prefetcher(
            order.visits(share.position.next_batch),
            shards,
            halt,
            read=read,
            holds=self._cache.holds,
            ahead=config.prefetch.shards_ahead,
            num_threads=config.prefetch.num_threads,
        )
        self._clocks: dict[Stage, StageClock] = {each: StageClock() for each in Stage if each is not Stage.PREFETCH}
        self._gatherer = Gatherer(
            order,
            self._cache,
            shards,
            arrive=self._arrive,
            fetch=read,
        )
        self._gathered: Channel[Rows] = Channel(halt, capacity=config.batches_ahead)
        self._sent: Channel[Rows] = Channel(halt, capacity=config.batches_ahead)
        self._ready: Channel[_Marked] = Channel(halt, capacity=config.batches_ahead)
        self._steps = {Stage.CACHE: self._gather, Stage.TRANSFER: self._send, Stage.PREPROCESS: self._preprocess}
        self._threads = [
            *self._prefetcher.threads,
            *(StageThread(stage, step, self._clocks[stage], halt) for stage, step in self._steps.items()),
        ]

    def __enter__(self) -> DataPipeline:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Call it after the fork that makes the worker."""
        self._clocks[Stage.TRAIN].start()
        for thread in [] if self._inline else self._threads:
            thread.start()

    def stop(self) -> None:
        """End all stages and wait for their threads, `STOP_S` at most. May be called more than once."""
        self._halt.stop()
        until = time.monotonic() + STOP_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        self._clocks[Stage.TRAIN].close()

    def next(self) -> Sample:
        """The next batch's part. Raises the first error of any stage, and `DataError` when nothing comes for longer
        than a read with all its repetitions may take.
        """
        marked = self._take(3 * self._reader.longest_s)
        sample = marked.sample
        self._lane.receive(marked.mark, (sample.inputs, sample.targets))
        self._clocks[Stage.TRAIN].count()
        return sample

    def timings(self) -> Mapping[Stage, StageTiming]:
        """From any thread."""
        return {Stage.PREFETCH: self._prefetcher.timing()} | {
            stage: clock.timing() for stage, clock in self._clocks.items()
        }

    def depths(self) -> Mapping[Stage, tuple[int, int]]:
        """How many batches wait behind a stage, and how many may."""
        capacity = self._ready.capacity
        return {
            Stage.CACHE: (len(self._gathered), capacity),
            Stage.TRANSFER: (len(self._sent), capacity),
            Stage.PREPROCESS: (len(self._ready), capacity),
        }

    @property
    def cache_counts(self) -> CacheCounts:
        return self._cache.counts

    def _take(self, timeout_s: float) -> _Marked:
        clock = self._clocks[Stage.TRAIN]
        try:
            if self._inline:
                with clock.during(Activity.INPUT):
                    self._make()
            return self._ready.get(clock, timeout_s)
        except TimeoutError:
            raise DataError(
                f"no batch for {timeout_s:g} s ({self._doing()})", mend="look at the stacks of its threads"
            ) from None
        except Halted:
            pass
        raise self._halt.error or DataError("the data pipeline was stopped", mend="make another")

    def _make(self) -> None:
        """One batch through all stages on the caller's thread."""
        for stage, step in self._steps.items():
            with self._clocks[stage].running():
                step(self._clocks[stage])

    def _arrive(self) -> Arrival:
        if self._inline:
            self._prefetcher.read_next()
        return self._prefetcher.get(self._clocks[Stage.CACHE])

    def _gather(self, clock: StageClock) -> None:
        batch, _ = self._order.next(Position(next_batch=self._next_index), self._share.skip)
        self._next_index = batch.index + 1
        rows = self._gatherer.gather(batch, batch.slice(self._share.rank, self._share.world_size))
        starts = self._own_starts(batch)
        self._gathered.put(Rows(index=batch.index, bytes=torch.from_numpy(rows), starts=starts), clock)
        clock.count()

    def _own_starts(self, batch: Batch) -> Tensor | None:
        if self._mask is None:
            return None
        starts = self._mask.starts(batch.index, batch_size=self._batch_size)
        return torch.tensor_split(starts, self._share.world_size)[self._share.rank]

    def _send(self, clock: StageClock) -> None:
        rows = self._gathered.get(clock)
        starts = None if rows.starts is None else self._lane.send(rows.starts)
        self._sent.put(Rows(index=rows.index, bytes=self._lane.send(rows.bytes), starts=starts), clock)
        clock.count()

    def _preprocess(self, clock: StageClock) -> None:
        rows = self._sent.get(clock)
        with self._lane.work():
            inputs, targets = shift(pack(rows.bytes, context=self._order.context))
            if self._mask is not None and rows.starts is not None:
                inputs = self._mask.apply(inputs, rows.starts)
        sample = Sample(index=rows.index, inputs=inputs, targets=targets)
        self._ready.put(_Marked(sample=sample, mark=self._lane.mark()), clock)
        clock.count()

    def _doing(self) -> str:
        words = []
        for stage, clock in self._clocks.items():
            activity, seconds = clock.doing
            words.append(f"{stage}: {activity} for {seconds:.0f} s")
        return ", ".join(words)


def _cache(config: DataConfig, rank: int) -> ShardCache:
    directory = config.cache.directory
    spill = None
    if directory is not None and config.shards.url is not None:
        spill = SpillFolder(directory / f"rank-{rank}", max_bytes=config.cache.disk_mb * 2**20)
    return ShardCache(max_bytes=config.cache.memory_mb * 2**20, spill=spill)
