from __future__ import annotations

import pytest
import torch

from everstep.core.errors import ManifestError
from everstep.trainer.checkpoint.shard import ShardCodec
from everstep.trainer.data import Position
from everstep.trainer.state import TrainState

STATE = TrainState(
    step=7, loss=1.25, tokens=900, corpus=11, position=Position(next_batch=9, sample_hash=2**51 + 1, skipped=(3, 4))
)


def _tensors(fill: float) -> dict[str, torch.Tensor]:
    return {"weight/a": torch.full((3, 5), fill), "step/a": torch.tensor(fill), "weight/empty": torch.empty(0, 5)}


def test_tensors_state_and_random_numbers_come_back_exactly() -> None:
    shard = ShardCodec(_tensors(1.5)).pack(STATE).clone()
    expected = torch.rand(3)
    target = _tensors(0.0)
    assert ShardCodec(target).unpack(shard) == STATE
    assert target["weight/a"].tolist() == [[1.5] * 5] * 3
    assert float(target["step/a"]) == 1.5
    assert torch.rand(3).tolist() == expected.tolist()


def test_a_longer_head_fits_into_the_reused_buffer() -> None:
    codec = ShardCodec(_tensors(2.0))
    codec.pack(TrainState())
    long = TrainState(position=Position(skipped=tuple(range(5000))))
    assert ShardCodec(_tensors(0.0)).unpack(codec.pack(long)) == long


def test_a_shard_of_another_model_or_format_is_refused() -> None:
    shard = ShardCodec({"weight/b": torch.zeros(2)}).pack(STATE)
    with pytest.raises(ManifestError, match="another shape"):
        ShardCodec(_tensors(0.0)).unpack(shard)
    with pytest.raises(ManifestError, match="not a shard of this version"):
        ShardCodec(_tensors(0.0)).unpack(torch.zeros(256, dtype=torch.uint8))


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(ManifestError, match="data position"):
        TrainState.from_json({"step": 1})
