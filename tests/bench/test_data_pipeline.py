"""The feeds of the bench give the same windows, and its verdict follows the rows."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from everstep.bench import data_pipeline
from everstep.bench.data_pipeline import BATCH, CONTEXT, EPOCH, NUM_SHARDS, OURS, SHARD_BYTES


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(data_pipeline, "READ_S", 0.0)
    data_pipeline.register()
    data_pipeline.write_shards(tmp_path, seed=1)
    return f"slow://{tmp_path}"


@pytest.mark.parametrize("feed", [data_pipeline.ours, data_pipeline.iterable_style, data_pipeline.map_style])
def test_every_feed_gives_every_window_once_an_epoch(feed: data_pipeline.Feed, url: str, tmp_path: Path) -> None:
    texts = [(tmp_path / f"{number:03}.bin").read_bytes() for number in range(NUM_SHARDS)]
    wanted = Counter(text[at + 1 : at + CONTEXT + 1] for text in texts for at in range(0, SHARD_BYTES - 1, CONTEXT))
    with feed(url, 1, 2) as batches:
        got = Counter(bytes(row.tolist()) for _, targets in islice(batches, EPOCH) for row in targets)
    assert got.total() == EPOCH * BATCH == wanted.total()
    assert got == wanted


def _row(wait_ms: float, throughput: float) -> dict[str, float]:
    return {"wait_ms_per_step": wait_ms, "throughput_against_ours": throughput}


@pytest.mark.parametrize(
    ("theirs", "verdict"), [((2.0, 0.9), "met"), ((2.0, 1.1), "missed"), ((0.5, 0.9), "missed"), ((1.0, 1.0), "missed")]
)
def test_a_rival_is_beaten_by_less_wait_and_no_less_throughput(theirs: tuple[float, float], verdict: str) -> None:
    assert list(data_pipeline.judge({OURS: _row(1.0, 1.0), "rival": _row(*theirs)}).values()) == [verdict]
