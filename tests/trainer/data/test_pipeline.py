from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from everstep.core.errors import ConfigError
from everstep.trainer.config import CacheConfig, PrefetchConfig, ShardsConfig
from everstep.trainer.data import DataError, DataPipeline, Share, Stage
from everstep.trainer.data.shard import Shard
from everstep.trainer.data.store import FolderStore, MemoryStore

SHARDS = ShardsConfig(url="memory://", mix=2)
ALONE = ShardsConfig(url="memory://", mix=1)
Make = Callable[..., Any]
Texts = Callable[[int], dict[str, bytes]]


class Counting(MemoryStore):
    """Remembers what was read; `gate` holds every read back until it is set."""

    def __init__(self, texts: dict[str, bytes], *, delay_s: float = 0.0) -> None:
        super().__init__(texts)
        self.reads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self._delay_s = delay_s

    def read(self, shard: Shard) -> bytes:
        self.reads.append(shard.name)
        self.gate.wait(30)
        time.sleep(self._delay_s)
        return super().read(shard)


def _threads() -> list[str]:
    return sorted({thread.name for thread in threading.enumerate() if thread.name.startswith("data-")})


def _settle(pipeline: DataPipeline) -> None:
    """Wait until the last queue is full and the numbers of all stages stand still."""
    until, before = time.monotonic() + 20, None
    while time.monotonic() < until:
        items = {stage: timing.num_items for stage, timing in pipeline.timings().items()}
        if before == items and all(depth == room for depth, room in pipeline.depths().values()):
            return
        before = items
        time.sleep(0.2)
    raise AssertionError(pipeline.depths())


def _end_reads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("data-read-"):
            thread.join(10)


def _drain(pipeline: DataPipeline) -> None:
    for _ in range(100):
        pipeline.next()


def test_no_thread_runs_before_start_or_after_stop(bench: Make) -> None:
    pipeline = bench().pipeline()
    assert _threads() == []
    pipeline.start()
    pipeline.next()
    assert {"data-cache", "data-prefetch", "data-preprocess", "data-transfer"} <= set(_threads())
    pipeline.stop()
    assert _threads() == []
    pipeline.stop()
    with pytest.raises(DataError, match="the data pipeline was stopped"):
        pipeline.next()


def test_a_pipeline_that_was_never_started_can_be_stopped(bench: Make) -> None:
    bench().pipeline().stop()
    assert _threads() == []


def test_nobody_runs_ahead_of_a_consumer_that_does_not_take(bench: Make) -> None:
    texts = {f"{number:02}": bytes(100) for number in range(40)}
    store = Counting(texts)
    data = bench(store, batches_ahead=2, shards=SHARDS, prefetch=PrefetchConfig(shards_ahead=3, num_threads=2))
    with data.pipeline() as pipeline:
        _settle(pipeline)
        assert set(pipeline.depths().values()) == {(2, 2)}
        held = 3 * 2 + 3  # three full queues and one batch in the hands of each stage
        assert pipeline.timings()[Stage.CACHE].num_items <= held
        assert len(store.reads) <= 3 + -(-held * 6 // 12) + 2  # ahead, used (12 windows each), the rest of a block
        before = len(store.reads)
        for _ in range(12):
            pipeline.next()
        _settle(pipeline)
        assert len(store.reads) > before


def test_the_shards_of_the_next_epoch_are_read_before_it_begins(bench: Make) -> None:
    store = Counting({f"{number}": bytes(600_000) for number in range(4)})
    ahead = PrefetchConfig(shards_ahead=3, num_threads=1)
    data = bench(store, batch_size=1000, batches_ahead=1, prefetch=ahead, cache=CacheConfig(memory_mb=1), shards=ALONE)
    epoch = data.order.batches_per_epoch
    with data.pipeline() as pipeline:
        for _ in range(epoch - 3 - 3 - 2):  # what the queues and the stages hold is still of the first epoch
            pipeline.next()
        _settle(pipeline)
        assert pipeline.timings()[Stage.CACHE].num_items < epoch
        assert len(store.reads) > 4


def test_a_window_longer_than_an_epoch_reads_nothing_twice(bench: Make) -> None:
    store = Counting({f"{number}": bytes(100) for number in range(4)})
    data = bench(store, batch_size=12, prefetch=PrefetchConfig(shards_ahead=16, num_threads=1))
    with data.pipeline() as pipeline:
        for _ in range(20):
            pipeline.next()
    assert sorted(store.reads) == ["0", "1", "2", "3"]


def test_an_epoch_that_fits_the_cache_is_read_once(bench: Make, texts: Texts) -> None:
    store = Counting(texts(1))
    data = bench(store)
    with data.pipeline() as pipeline:
        for _ in range(4 * data.order.batches_per_epoch):
            pipeline.next()
    assert sorted(store.reads) == sorted(set(texts(1)) - {"short"})


def test_what_the_cache_forgets_is_read_again_and_right(bench: Make, tmp_path: Path) -> None:
    stored = {f"{number}": os.urandom(300_000) for number in range(8)}
    mixed = ShardsConfig(url="memory://", mix=4)
    small = CacheConfig(memory_mb=1, directory=tmp_path, disk_mb=1)
    plain = bench(stored, batch_size=2000, shards=mixed)
    tight = bench(stored, batch_size=2000, shards=mixed, cache=small)
    with plain.pipeline() as wide, tight.pipeline() as narrow:
        for _ in range(int(1.5 * plain.order.batches_per_epoch)):
            assert wide.next().inputs.equal(narrow.next().inputs)
        assert narrow.cache_counts.evictions > 0
        assert narrow.cache_counts.disk_hits > 0


def test_a_slow_store_is_hidden_behind_the_steps(bench: Make, texts: Texts) -> None:
    """With the cache warm the consumer waits for nothing: the second epoch has no read at all."""
    store = Counting(texts(2), delay_s=0.02)
    data = bench(store, seed=2)
    with data.pipeline() as pipeline:
        for _ in range(data.order.batches_per_epoch):
            pipeline.next()
        _settle(pipeline)
        reads = len(store.reads)
        for _ in range(data.order.batches_per_epoch):
            pipeline.next()
        assert len(store.reads) == reads
        busy = pipeline.timings()[Stage.PREFETCH].busy_s
    assert busy >= 0.02 * reads


def test_timings_cover_the_whole_time_of_every_stage(bench: Make) -> None:
    with bench().pipeline() as pipeline:
        for _ in range(5):
            pipeline.next()
        _settle(pipeline)
        timings = pipeline.timings()
    assert list(timings) == list(Stage)
    assert timings[Stage.TRAIN].num_items == 5
    assert timings[Stage.PREPROCESS].output_wait_s > 0
    assert timings[Stage.CACHE].num_items >= 5 + 3


def test_a_shard_that_vanishes_is_one_clear_error(bench: Make, texts: Texts, tmp_path: Path) -> None:
    for name, text in texts(3).items():
        (tmp_path / name).write_bytes(text)
    data = bench(FolderStore(tmp_path))
    pipeline = data.pipeline()
    (tmp_path / "shard-3").unlink()
    pipeline.start()
    for _ in range(2):
        with pytest.raises(DataError, match=r"cannot read shard shard-3 \(FileNotFoundError.*restore it"):
            _drain(pipeline)
    pipeline.stop()


def test_a_store_that_is_away_for_a_while_is_survived(
    bench: Make, texts: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(MemoryStore):
        """Refuses its first read of one shard."""

        refused = False

        def read(self, shard: Shard) -> bytes:
            if shard.name == "shard-2" and not self.refused:
                self.refused = True
                raise PermissionError(13, "token expired")
            return super().read(shard)

    away, whole = bench(Away(texts(1))), bench(texts(1))
    with away.pipeline() as ours, whole.pipeline() as theirs:
        for _ in range(whole.order.batches_per_epoch):
            assert ours.next().inputs.equal(theirs.next().inputs)
    assert "cannot read shard shard-2 (PermissionError" in caplog.text
    assert "it is read again when it is due" in caplog.text


def test_a_shard_that_shrank_is_one_clear_error(bench: Make, texts: Texts, tmp_path: Path) -> None:
    for name, text in texts(3).items():
        (tmp_path / name).write_bytes(text)
    data = bench(FolderStore(tmp_path))
    pipeline = data.pipeline()
    (tmp_path / "shard-3").write_bytes(b"")
    pipeline.start()
    with pytest.raises(DataError, match="cannot read shard shard-3 .it has 0 bytes and was listed with"):
        _drain(pipeline)


def test_a_defect_in_a_stage_reaches_the_consumer(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = bench().pipeline()
    monkeypatch.setattr(pipeline._lane, "send", lambda _: 1 / 0)
    pipeline.start()
    with pytest.raises(
        DataError, match=r"the transfer stage of the data pipeline failed \(ZeroDivisionError"
    ) as caught:
        pipeline.next()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_store_that_hangs_ends_the_run_and_says_so(bench: Make, texts: Texts) -> None:
    store = Counting(texts(1))
    store.gate.clear()
    data = bench(store, prefetch=PrefetchConfig(shards_ahead=2, num_threads=1, attempts=1, timeout_s=0.2))
    with data.pipeline() as pipeline, pytest.raises(DataError, match=r"cannot read shard .*no answer for 0\.2 s"):
        pipeline.next()
    store.gate.set()
    _end_reads()


def test_stop_does_not_wait_for_a_read_that_hangs(bench: Make, texts: Texts) -> None:
    store = Counting(texts(1))
    store.gate.clear()
    pipeline = bench(store, prefetch=PrefetchConfig(timeout_s=60)).pipeline()
    pipeline.start()
    while not store.reads:
        time.sleep(0.01)
    pipeline.stop()
    assert [name for name in _threads() if not name.startswith("data-read-")] == []
    store.gate.set()
    _end_reads()


def test_a_rank_without_a_window_gets_empty_tensors(bench: Make) -> None:
    with bench().pipeline(Share(rank=6, world_size=7)) as pipeline:
        assert pipeline.next().inputs.shape == (0, 8)


def test_a_text_in_memory_takes_the_same_way_without_a_thread(bench: Make) -> None:
    data = bench({"text": bytes(range(256)) * 4})
    resident = replace(data.source, resident=True)
    inline = DataPipeline(resident, data.order, data.config, Share(), device=torch.device("cpu"), seed=1)
    with data.pipeline() as threaded, inline:
        for _ in range(2 * data.order.batches_per_epoch):
            ours, theirs = inline.next(), threaded.next()
            assert ours.index == theirs.index
            assert ours.inputs.equal(theirs.inputs)
            assert ours.targets.equal(theirs.targets)
        threaded.stop()
        assert _threads() == []
        timings = inline.timings()
    assert timings[Stage.TRAIN].num_items == timings[Stage.CACHE].num_items > 0
    assert timings[Stage.PREFETCH].busy_s > 0
    with pytest.raises(DataError, match="the data pipeline was stopped"):
        inline.next()


def test_too_little_text_is_refused_at_once(bench: Make) -> None:
    with pytest.raises(ConfigError, match="holds 1 windows of 8 bytes and a batch needs 6"):
        bench({"a": b"0123456789"}).pipeline()


def test_reads_happen_side_by_side(bench: Make) -> None:
    class Meeting(MemoryStore):
        """A read ends when another one has begun too."""

        barrier = threading.Barrier(2, timeout=20)

        def read(self, shard: Shard) -> bytes:
            self.barrier.wait()
            return super().read(shard)

    store = Meeting({f"{number:02}": bytes(100) for number in range(40)})
    prefetch = PrefetchConfig(shards_ahead=4, num_threads=2, attempts=1)
    with bench(store, shards=SHARDS, prefetch=prefetch).pipeline() as pipeline:
        for _ in range(20):
            pipeline.next()
    store.barrier.abort()
    _end_reads()
