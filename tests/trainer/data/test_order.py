from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from everstep.core.errors import ConfigError
from everstep.trainer.config import DataConfig
from everstep.trainer.data import Corpus, DataOrder, Position, read_corpus
from everstep.trainer.data.gather import windows_of

CONTEXT, BATCH = 8, 4


def _order(seed: int = 3, num_bytes: int = 8 * 22 + 1) -> DataOrder:
    text = np.arange(num_bytes, dtype=np.uint64).astype(np.uint8)
    return DataOrder(Corpus(text=text, fingerprint=1), context=CONTEXT, batch_size=BATCH, seed=seed)


def _walk(order: DataOrder, position: Position, steps: int, skip: frozenset[int]) -> tuple[list[int], Position]:
    indices = []
    for _ in range(steps):
        batch, left_out = order.next(position, skip)
        indices.append(batch.index)
        position = position.passed(batch, left_out)
    return indices, position


def test_an_epoch_visits_every_window_once_and_the_next_one_in_another_order() -> None:
    order = _order()
    assert order.batches_per_epoch == 5
    first = np.concatenate([order.batch(index).windows for index in range(5)])
    second = np.concatenate([order.batch(index).windows for index in range(5, 10)])
    assert len(set(first.tolist())) == len(first) == 20
    assert first.tolist() != second.tolist()


def test_the_order_is_a_function_of_the_seed_and_may_be_read_backwards() -> None:
    forward = [_order().batch(index).windows.tolist() for index in range(12)]
    order = _order()
    assert [order.batch(index).windows.tolist() for index in reversed(range(12))] == forward[::-1]
    assert _order(seed=4).batch(0).windows.tolist() != forward[0]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_rank_slices_cover_the_batch_in_order(world_size: int) -> None:
    batch = _order().batch(2)
    slices = [batch.slice(rank, world_size) for rank in range(world_size)]
    assert np.concatenate(slices).tolist() == batch.windows.tolist()
    assert max(map(len, slices)) - min(map(len, slices)) <= 1


def test_windows_hold_inputs_and_the_byte_that_follows() -> None:
    text = np.arange(8 * 22 + 1, dtype=np.uint8)
    tokens = windows_of(text, context=CONTEXT)[np.array([0, 2])]
    assert tokens.tolist() == [list(range(9)), list(range(16, 25))]


def test_resuming_at_a_position_is_exact() -> None:
    order = _order()
    _, straight = _walk(order, Position(), 13, frozenset())
    _, half = _walk(order, Position(), 6, frozenset())
    _, resumed = _walk(_order(), half, 7, frozenset())
    assert resumed == straight
    assert 0 <= straight.sample_hash < 2**52


def test_skipped_batches_are_left_out_and_remembered() -> None:
    indices, position = _walk(_order(), Position(), 4, frozenset({1, 2, 9}))
    assert indices == [0, 3, 4, 5]
    assert position.skipped == (1, 2)
    assert position.sample_hash != _walk(_order(), Position(), 4, frozenset())[1].sample_hash


def test_the_corpus_is_sorted_bounded_and_fingerprinted(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("B" * 5000)
    (tmp_path / "a.py").write_text("A" * 100)
    (tmp_path / "c.txt").write_text("C")
    corpus = read_corpus(DataConfig(directory=tmp_path, max_bytes=4096))
    assert bytes(corpus.text) == b"A" * 100 + b"B" * 3996
    (tmp_path / "a.py").write_text("a" * 100)
    assert read_corpus(DataConfig(directory=tmp_path, max_bytes=4096)).fingerprint != corpus.fingerprint


def test_the_standard_library_is_the_default_text() -> None:
    corpus = read_corpus(DataConfig(max_bytes=100_000))
    assert len(corpus.text) == 100_000
    assert b"import" in bytes(corpus.text)


def test_no_text_or_too_little_is_an_error_that_names_the_mend(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no \*\.py text .*set data.directory"):
        read_corpus(DataConfig(directory=tmp_path))
    with pytest.raises(ConfigError, match=r"raise data\.max_bytes"):
        _order(num_bytes=17)
