from __future__ import annotations

import doctest

import pytest
import torch

from everstep.trainer.config import MaskConfig
from everstep.trainer.data import preprocess
from everstep.trainer.data.preprocess import SpanMask, pack, shift


def test_bytes_become_windows_of_token_ids() -> None:
    windows = pack(torch.arange(12, dtype=torch.uint8), context=5)
    assert windows.tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert windows.dtype == torch.int64


def test_a_target_is_the_byte_after_its_input() -> None:
    inputs, targets = shift(pack(torch.arange(12, dtype=torch.uint8), context=5))
    assert inputs.tolist() == [[0, 1, 2, 3, 4], [6, 7, 8, 9, 10]]
    assert targets.tolist() == [[1, 2, 3, 4, 5], [7, 8, 9, 10, 11]]


@pytest.mark.parametrize(("ratio", "span", "hidden"), [(0.25, 4, 8), (0.5, 2, 16), (0.01, 3, 3), (0.9, 5, 30)])
def test_spans_hide_the_ratio_and_never_meet(ratio: float, span: int, hidden: int) -> None:
    mask = SpanMask(MaskConfig(ratio=ratio, span=span, byte=255), context=32, seed=1)
    inputs = torch.arange(32).repeat(50, 1)
    for index in range(20):
        masked = mask.apply(inputs, mask.starts(index, batch_size=50))
        assert ((masked == 255).sum(dim=1) == hidden).all()
        assert ((masked == inputs) | (masked == 255)).all()


def test_masks_differ_by_batch_window_and_seed_and_are_the_same_again() -> None:
    mask = SpanMask(MaskConfig(ratio=0.25), context=64, seed=1)
    starts = mask.starts(5, batch_size=8)
    assert torch.equal(starts, SpanMask(MaskConfig(ratio=0.25), context=64, seed=1).starts(5, batch_size=8))
    assert not torch.equal(starts, mask.starts(6, batch_size=8))
    assert not torch.equal(starts, SpanMask(MaskConfig(ratio=0.25), context=64, seed=2).starts(5, batch_size=8))
    assert len({tuple(row) for row in starts.tolist()}) > 1


def test_the_example_holds() -> None:
    assert doctest.testmod(preprocess).failed == 0
