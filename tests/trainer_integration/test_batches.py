from __future__ import annotations

import math
from collections import UserDict

import pytest
import torch

from everstep.trainer_integration.batches import count_tokens, is_finite, tensors_of

TEXT = torch.zeros(4, 7, dtype=torch.long)
LENGTHS = torch.full((4,), 7)
WEIGHTS = torch.ones(4, 9)


@pytest.mark.parametrize(
    ("batch", "tokens"),
    [
        (TEXT, 28),
        ([WEIGHTS, LENGTHS, TEXT], 28),
        ({"labels": WEIGHTS.long(), "input_ids": TEXT}, 28),
        (UserDict(inputs=(TEXT,)), 28),
        (WEIGHTS, 0),
        ("text", 0),
        (None, 0),
    ],
)
def test_tokens_are_batch_size_times_length(batch: object, tokens: int) -> None:
    assert count_tokens(batch) == tokens


def test_tensors_are_found_at_any_depth() -> None:
    assert [each.shape[0] for each in tensors_of({"a": [TEXT, (LENGTHS, "b")], "c": 3})] == [4, 4]


@pytest.mark.parametrize(("value", "finite"), [(1.0, True), (math.nan, False), (math.inf, False)])
def test_one_bad_number_makes_a_batch_bad(value: float, finite: bool) -> None:
    weights = WEIGHTS.clone()
    weights[3, 8] = value
    assert is_finite({"text": TEXT, "weights": [weights]}) is finite
