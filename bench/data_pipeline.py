"""The trainer's data pipeline against `torch.utils.data.DataLoader`: same files, same slow store, same training step.

Every read of the store takes 20 ms longer than the disk does. The rivals: a DataLoader over single windows, in which
each sample is a read (map style), and one whose workers read whole shards, mix them and cut them into windows (iterable
style), which is what people build when the first is too slow; that one with as many workers as there are cores and with
twice as many.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from statistics import fmean, median
from typing import Any

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from everstep.bench.harness import BenchResult, Label, arguments, finish, provenance
from everstep.trainer.config import CacheConfig, DataConfig, ModelConfig, PrefetchConfig, ShardsConfig
from everstep.trainer.data import DataOrder, DataPipeline, Share, open_source, read_corpus
from everstep.trainer.model import Decoder, initialise, weighted_loss

READ_S = 0.020
CONTEXT = 128
BATCH = 8
MIX = 4
NUM_SHARDS = 16
SHARD_BYTES = 64 * CONTEXT + 1
AHEAD = 4
"""Batches that each of ours holds, and that each worker of the rivals prefetches."""
EPOCH = NUM_SHARDS * (SHARD_BYTES - 1) // CONTEXT // BATCH
STEPS = 3 * EPOCH // 2
MODEL = ModelConfig(width=32, layers=1, heads=2, kv_heads=1, hidden=64, context=CONTEXT)


class SlowFiles(LocalFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """The local disk, `READ_S` away."""

    protocol = ("slow",)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("slow://"))
        return stripped

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        time.sleep(READ_S)
        content: bytes = super().cat_file(path, start=start, end=end, **kwargs)
        return content


def register() -> None:
    """Make `slow://` known to fsspec."""
    fsspec.register_implementation("slow", SlowFiles, clobber=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Seconds that a step waited for its batch; the first wait includes the start of threads or processes."""

    waits: Sequence[float]
    spent_s: float
    num_windows: int

    @property
    def first_s(self) -> float:
        return self.waits[0]

    @property
    def second_epoch_ms(self) -> float:
        """NaN for a run that did not reach it."""
        return fmean(self.waits[EPOCH:]) * 1e3 if len(self.waits) > EPOCH else nan

    @property
    def wait_ms(self) -> float:
        return fmean(self.waits) * 1e3

    @property
    def later_ms(self) -> float:
        return fmean(self.waits[1:]) * 1e3

    @property
    def windows_per_s(self) -> float:
        return self.num_windows / self.spent_s


Batches = Iterator[tuple[Tensor, Tensor]]


class Windows(Dataset[Tensor]):
    """Map style: one read a window."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._per_shard = (SHARD_BYTES - 1) // CONTEXT

    def __len__(self) -> int:
        return NUM_SHARDS * self._per_shard

    def __getitem__(self, index: int) -> Tensor:
        shard, at = divmod(index, self._per_shard)
        files, root = fsspec.core.url_to_fs(self._url)
        start = at * CONTEXT
        return _bytes(files.cat_file(f"{root}/{shard:03}.bin", start, start + CONTEXT + 1))


class MixedShards(IterableDataset[Tensor]):
    """Iterable style: each worker reads its shards whole, `MIX` at a time divided by the workers, and mixes them."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._seed = seed
        self._epoch = 0

    def __iter__(self) -> Iterator[Tensor]:
        info = get_worker_info()
        rank, num_workers = (info.id, info.num_workers) if info else (0, 1)
        files, root = fsspec.core.url_to_fs(self._url)
        rng = random.Random(f"{self._seed}/{self._epoch}")
        self._epoch += 1
        shards = rng.sample(range(NUM_SHARDS), NUM_SHARDS)[rank::num_workers]
        mix = max(1, MIX // num_workers)
        for first in range(0, len(shards), mix):
            texts = [_bytes(files.cat_file(f"{root}/{shard:03}.bin")) for shard in shards[first : first + mix]]
            windows = torch.cat([text.unfold(0, CONTEXT + 1, CONTEXT) for text in texts])
            yield from windows[torch.tensor(rng.sample(range(len(windows)), len(windows)))]


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _loaded(loader: DataLoader[Tensor]) -> Batches:
    """Epoch after epoch, shifted as ours are."""
    while True:
        for rows in loader:
            windows = rows.long()
            yield windows[:, :-1], windows[:, 1:]


@contextmanager
def map_style(url: str, seed: int, num_workers: int) -> Iterator[Batches]:
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(
        Windows(url),
        batch_size=BATCH,
        shuffle=True,
        generator=generator,
        drop_last=True,
        num_workers=num_workers,
        prefetch_factor=AHEAD,
        persistent_workers=True,
    )
    yield _loaded(loader)


@contextmanager
def iterable_style(url: str, seed: int, num_workers: int) -> Iterator[Batches]:
    loader = DataLoader(
        MixedShards(url, seed),
        batch_size=BATCH,
        drop_last=True,
        num_workers=num_workers,
        prefetch_factor=AHEAD,
        persistent_workers=True,
    )
    yield _loaded(loader)


@contextmanager
def ours(url: str, seed: int, num_threads: int) -> Iterator[Batches]:
    config = DataConfig(
        batch_size=BATCH,
        batches_ahead=AHEAD,
        shards=ShardsConfig(url=url, mix=MIX),
        prefetch=PrefetchConfig(shards_ahead=2 * MIX, num_threads=num_threads),
        cache=CacheConfig(memory_mb=64),
    )
    source = open_source(config)
    order = DataOrder(source.catalog, context=CONTEXT, batch_size=BATCH, seed=seed, mix=MIX)
    with DataPipeline(source, order, config, Share(), device=torch.device("cpu"), seed=seed) as pipeline:

        def batches() -> Batches:
            while True:
                sample = pipeline.next()
                yield sample.inputs, sample.targets

        yield batches()


Feed = Callable[[str, int, int], AbstractContextManager[Batches]]
FEEDS: Mapping[str, tuple[Feed, int]] = {
    "everstep, 4 reader threads": (ours, 4),
    "DataLoader, iterable, 2 workers": (iterable_style, 2),
    "DataLoader, iterable, 4 workers": (iterable_style, 4),
    "DataLoader, map style, 4 workers": (map_style, 4),
}
OURS = next(iter(FEEDS))


def train(feed: Feed, url: str, *, seed: int, size: int, steps: int) -> Load:
    """Steps of a small decoder, forward and backward, on whatever comes."""
    model = Decoder(MODEL)
    initialise(model, seed=seed, layers=MODEL.layers)
    waits = []
    began = asked = time.perf_counter()
    with feed(url, seed, size) as batches:
        for _ in range(steps):
            inputs, targets = next(batches)
            waits.append(time.perf_counter() - asked)
            weighted_loss(model(inputs), targets, torch.ones(targets.shape)).backward()  # type: ignore[no-untyped-call]
            model.zero_grad()
            asked = time.perf_counter()
        spent_s = asked - began
    return Load(waits=waits, spent_s=spent_s, num_windows=steps * BATCH)


def write_shards(folder: Path, *, seed: int) -> None:
    """Text of the standard library, cut at places drawn from the seed."""
    text = read_corpus(DataConfig(max_bytes=8 * 2**20)).text.tobytes()
    rng = random.Random(seed)
    for number in range(NUM_SHARDS):
        start = rng.randrange(len(text) - SHARD_BYTES)
        (folder / f"{number:03}.bin").write_bytes(text[start : start + SHARD_BYTES])


def measure(url: str, *, seed: int, rounds: int, map_steps: int) -> dict[str, list[Load]]:
    """Round by round, each feed in turn; map style is so slow that it gets only some steps."""
    loads: dict[str, list[Load]] = {name: [] for name in FEEDS}
    for number in range(rounds):
        for name, (feed, size) in FEEDS.items():
            steps = map_steps if feed is map_style else STEPS
            load = train(feed, url, seed=seed + number, size=size, steps=steps)
            loads[name].append(load)
            print(
                f"round {number + 1}, {name}: first batch {load.first_s:.2f} s, then {load.later_ms:.2f} ms a step,"
                f" {load.windows_per_s:.0f} windows/s",
                flush=True,
            )
    return loads


def middle(loads: Sequence[Load], what: Callable[[Load], float]) -> float:
    return median(what(load) for load in loads)


def summary(loads: Sequence[Load], mine: Sequence[Load]) -> dict[str, float]:
    """`throughput_against_ours` compares runs of the same round, so that other load on the machine hits both."""
    ratios = [load.windows_per_s / own.windows_per_s for load, own in zip(loads, mine, strict=True)]
    row = {
        "first_batch_s": round(middle(loads, lambda load: load.first_s), 4),
        "wait_ms_per_step": round(middle(loads, lambda load: load.wait_ms), 3),
        "wait_ms_per_step_after_first": round(middle(loads, lambda load: load.later_ms), 3),
        "wait_ms_worst_after_first": round(middle(loads, lambda load: max(load.waits[1:]) * 1e3), 2),
        "wait_ms_per_step_second_epoch": round(middle(loads, lambda load: load.second_epoch_ms), 3),
        "windows_per_s": round(middle(loads, lambda load: load.windows_per_s), 1),
        "throughput_against_ours": round(median(ratios), 3),
    }
    return {name: value for name, value in row.items() if not isnan(value)}


def page(rows: Mapping[str, Mapping[str, float]], *, rounds: int, map_steps: int, command: str) -> str:
    lines = [
        "# Data pipeline\n",
        f"{NUM_SHARDS} shards of {SHARD_BYTES - 1} bytes behind a store whose every read takes {READ_S * 1e3:.0f} ms"
        f" longer; {BATCH} windows of {CONTEXT} bytes a step, {MIX} shards mixed; a one-layer decoder trains on them.",
        f"Medians of {rounds} rounds, the feeds in turn, {STEPS} steps each ({map_steps} for map style), {EPOCH} of"
        " them an epoch. Waits are those of the training thread; the last column is the median of the ratios within a"
        " round. Everstep keeps the shards that it has read, the DataLoaders read them again in the second epoch.\n",
        "| feed | first batch | wait a step, all | after the first | worst | second epoch | windows a second |"
        " against ours |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in rows.items():
        second_ms = row.get("wait_ms_per_step_second_epoch")
        second = "not reached" if second_ms is None else f"{second_ms:.2f} ms"
        lines.append(
            f"| {name} | {row['first_batch_s'] * 1e3:.0f} ms | {row['wait_ms_per_step']:.2f} ms"
            f" | {row['wait_ms_per_step_after_first']:.2f} ms | {row['wait_ms_worst_after_first']:.1f} ms | {second}"
            f" | {row['windows_per_s']:.0f} | {row['throughput_against_ours']:.2f} |"
        )
    return "\n".join([*lines, "", provenance(command)])


def judge(rows: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Against each rival: less wait, and at least its throughput."""
    my_wait_ms = rows[OURS]["wait_ms_per_step"]
    verdicts = {}
    for name, theirs in rows.items():
        if name != OURS:
            good = my_wait_ms < theirs["wait_ms_per_step"] and theirs["throughput_against_ours"] <= 1.0
            verdicts[f"less wait and no less throughput than {name}"] = "met" if good else "missed"
    return verdicts


def main(argv: list[str] | None = None) -> int:
    options = arguments("data_pipeline", "The trainer's data pipeline beside DataLoader on a slow store.").parse_args(
        argv
    )
    rounds, map_steps = (15, EPOCH) if options.full else (5, 32)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create 4 worker processes")
    register()
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder), seed=options.seed)
        loads = measure(f"slow://{folder}", seed=options.seed, rounds=rounds, map_steps=map_steps)
    rows = {name: summary(each, loads[OURS]) for name, each in loads.items()}
    goals = judge(rows)
    size = "--full" if options.full else "--quick"
    command = f"python -m everstep.bench.data_pipeline {size} --seed {options.seed}"
    result = BenchResult(
        bench="data_pipeline",
        ok=set(goals.values()) == {"met"},
        label=Label.REAL,
        seed=options.seed,
        measures={OURS: rows[OURS]},
        goals=goals,
        rivals={name: row for name, row in rows.items() if name != OURS},
    )
    return finish(result, page(rows, rounds=rounds, map_steps=map_steps, command=command))


if __name__ == "__main__":
    sys.exit(main())
