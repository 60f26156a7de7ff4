"""A store of drawn texts and a pipeline over it, stopped after the test."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
import torch

from everstep.trainer.config import DataConfig, PrefetchConfig, ShardsConfig
from everstep.trainer.data import Catalog, DataOrder, DataPipeline, Share, Source
from everstep.trainer.data.store import MemoryStore, Store

CONTEXT = 8


def drawn_texts(seed: int, *, num_shards: int = 7) -> dict[str, bytes]:
    """Shards of different sizes; one is too short for a window."""
    rng = random.Random(seed)  # noqa: S311 - seeded texts, not secrets
    texts = {f"shard-{number}": rng.randbytes(rng.randrange(40, 200)) for number in range(num_shards)}
    return texts | {"short": b"xyz"}


@dataclass
class Bench:
    """A data set under test; `pipeline` may be called again and again, as attempts of a job do."""

    store: Store
    config: DataConfig
    seed: int
    made: list[DataPipeline] = field(default_factory=list)

    @property
    def source(self) -> Source:
        return Source(catalog=Catalog.of(self.store.shards(), where="memory"), store=self.store)

    @property
    def order(self) -> DataOrder:
        return DataOrder(
            self.source.catalog,
            context=CONTEXT,
            batch_size=self.config.batch_size,
            seed=self.seed,
            mix=self.config.shards.mix,
        )

    def pipeline(self, share: Share | None = None) -> DataPipeline:
        made = DataPipeline(
            self.source, self.order, self.config, share or Share(), device=torch.device("cpu"), seed=self.seed
        )
        self.made.append(made)
        return made


@pytest.fixture
def texts() -> Callable[[int], dict[str, bytes]]:
    return drawn_texts


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(texts: Mapping[str, bytes] | Store | None = None, *, seed: int = 1, **config: object) -> Bench:
        store = (
            texts if texts is not None and not isinstance(texts, Mapping) else MemoryStore(texts or drawn_texts(seed))
        )
        defaults: dict[str, object] = {
            "batch_size": 6,
            "shards": ShardsConfig(url="memory://", mix=3),
            "prefetch": PrefetchConfig(shards_ahead=3, num_threads=2, attempts=2, timeout_s=5.0),
        }
        made.append(Bench(store=store, config=DataConfig(**{**defaults, **config}), seed=seed))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        for pipeline in each.made:
            pipeline.stop()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("data-")] == []
