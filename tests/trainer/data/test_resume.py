"""The promise of the pipeline: any position, any number of ranks, the same samples."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from everstep.trainer.config import MaskConfig
from everstep.trainer.data import Position, Share

NUM_STEPS = 40
Make = Callable[..., Any]
Sample = tuple[list[list[int]], list[list[int]]]


def _run(
    bench: Any, position: Position, steps: int, *, world_size: int, skip: frozenset[int]
) -> tuple[list[Sample], Position]:
    """What all ranks together train on, step by step, and where they stand then."""
    order = bench.order
    ranks = [
        bench.pipeline(Share(rank=rank, world_size=world_size, position=position, skip=skip))
        for rank in range(world_size)
    ]
    seen = []
    for pipeline in ranks:
        pipeline.start()
    for _ in range(steps):
        batch, left_out = order.next(position, skip)
        parts = [pipeline.next() for pipeline in ranks]
        assert {part.index for part in parts} == {batch.index}
        seen.append(
            (
                torch.cat([part.inputs for part in parts]).tolist(),
                torch.cat([part.targets for part in parts]).tolist(),
            )
        )
        position = position.passed(batch, left_out)
    for pipeline in ranks:
        pipeline.stop()
    return seen, position


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_resumed_at_every_position_trains_on_the_same_samples(bench: Make, seed: int) -> None:
    data = bench(seed=seed)
    assert data.order.batches_per_epoch < NUM_STEPS / 2, "the run must cross epochs"
    skip = frozenset(random.Random(seed).sample(range(NUM_STEPS), 4))  # noqa: S311 - seeded, not secret
    straight, end = _run(data, Position(), NUM_STEPS, world_size=1, skip=skip)
    for at in range(NUM_STEPS):
        before, position = _run(data, Position(), at, world_size=1, skip=skip)
        after, resumed = _run(data, position, NUM_STEPS - at, world_size=1, skip=skip)
        assert before + after == straight
        assert resumed == end


@pytest.mark.parametrize("seed", range(6))
def test_changes_of_the_world_size_on_the_way_change_nothing(bench: Make, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - seeded, not secret
    data = bench(seed=seed, mask=MaskConfig(ratio=0.3, span=2))
    straight, end = _run(data, Position(), NUM_STEPS, world_size=1, skip=frozenset())
    seen: list[Sample] = []
    position = Position()
    while len(seen) < NUM_STEPS:
        steps = min(rng.randrange(1, 12), NUM_STEPS - len(seen))
        more, position = _run(data, position, steps, world_size=rng.randrange(1, 8), skip=frozenset())
        seen += more
    assert seen == straight
    assert position == end
    assert position.epoch == end.epoch > 0


def test_the_samples_are_the_windows_of_the_shards(bench: Make) -> None:
    data = bench(seed=4)
    shards = data.source.catalog.shards
    seen, _ = _run(data, Position(), data.order.batches_per_epoch, world_size=2, skip=frozenset())
    got = [bytes([*inputs[:1], *targets]) for batch in seen for inputs, targets in zip(*batch, strict=True)]
    texts = [data.store.read(shard) for shard in shards]
    wanted = [text[at : at + 9] for text in texts for at in range(0, len(text) - 8, 8)]
    assert len(set(got)) == len(got)
    assert set(got) <= set(wanted)
    assert len(wanted) - len(got) < data.config.batch_size
