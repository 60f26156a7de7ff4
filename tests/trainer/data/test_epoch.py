from __future__ import annotations

import numpy as np
import pytest

from everstep.trainer.data.epoch import Epoch

COUNTS = [3, 0, 5, 1, 4, 2, 6]


def _epoch(number: int = 0, *, mix: int = 2, seed: int = 3) -> Epoch:
    return Epoch(number, first_ids=np.concatenate([[0], np.cumsum(COUNTS)]), mix=mix, seed=seed)


@pytest.mark.parametrize("mix", [1, 2, 3, 100])
def test_every_window_comes_once_whatever_is_mixed(mix: int) -> None:
    assert sorted(_epoch(mix=mix).windows(0, 21).tolist()) == list(range(21))


def test_the_windows_of_a_block_are_those_of_its_shards_and_empty_shards_are_in_none() -> None:
    epoch = _epoch()
    starts = np.concatenate([[0], np.cumsum(COUNTS)])
    for block, end in enumerate(epoch.ends):
        begin = int(epoch.ends[block - 1]) if block else 0
        wanted = [window for shard in epoch.blocks[block] for window in range(starts[shard], starts[shard + 1])]
        assert sorted(epoch.windows(begin, int(end)).tolist()) == sorted(wanted)
    assert 1 not in np.concatenate(epoch.blocks)


def test_any_piece_is_a_piece_of_the_whole() -> None:
    whole = _epoch().windows(0, 21).tolist()
    for start in range(21):
        for stop in range(start + 1, 22):
            assert _epoch().windows(start, stop).tolist() == whole[start:stop]


def test_epochs_and_seeds_differ_in_the_order_of_shards_and_windows() -> None:
    assert _epoch(0).windows(0, 21).tolist() != _epoch(1).windows(0, 21).tolist()
    assert _epoch(seed=3).windows(0, 21).tolist() != _epoch(seed=4).windows(0, 21).tolist()
    orders = {tuple(np.concatenate(_epoch(number).blocks).tolist()) for number in range(5)}
    assert len(orders) > 1


def test_only_the_shards_from_a_place_on_are_needed() -> None:
    epoch = _epoch()
    assert list(epoch.shards_from(0, 21)) == np.concatenate(epoch.blocks).tolist()
    assert list(epoch.shards_from(int(epoch.ends[0]), 21)) == np.concatenate(epoch.blocks[1:]).tolist()
    assert list(epoch.shards_from(0, 1)) == epoch.blocks[0].tolist()


def test_the_order_of_a_single_shard_is_pinned() -> None:
    """Checkpoints of earlier versions rely on it."""
    epoch = Epoch(1, first_ids=np.array([0, 6]), mix=8, seed=3)
    expected = np.random.Generator(np.random.Philox(key=[3, 1])).permutation(6)
    assert epoch.windows(0, 6).tolist() == expected.tolist()
