from __future__ import annotations

import pytest
import torch
from torch import nn

from everstep.trainer.config import OptimizerConfig
from everstep.trainer.optimizer import ShardedAdamW, learning_rate


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def test_it_equals_torch_adamw_on_a_plain_model() -> None:
    config = OptimizerConfig(weight_decay=0.1)
    ours, theirs = _model(), _model()
    optimizer = ShardedAdamW(ours, config)
    reference = torch.optim.AdamW(
        [{"params": [theirs.weight], "weight_decay": 0.1}, {"params": [theirs.bias], "weight_decay": 0.0}],
        lr=0.01,
        betas=(config.beta1, config.beta2),
    )
    for step in range(3):
        inputs = torch.full((2, 4), float(step + 1))
        ours(inputs).square().sum().backward()
        theirs(inputs).square().sum().backward()
        squares = optimizer.collect_gradients()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        assert float(squares.sqrt()) == pytest.approx(float(norm), rel=1e-5)
        optimizer.step(learning_rate=0.01, scale=min(1.0, 1.0 / (float(squares.sqrt()) + 1e-6)))
        reference.step()
        reference.zero_grad()
    assert torch.allclose(ours.weight, theirs.weight, atol=1e-6)
    assert ours.weight.grad is None


def test_its_tensors_are_views_of_weights_moments_and_step_counts() -> None:
    model = _model()
    tensors = ShardedAdamW(model, OptimizerConfig()).tensors()
    kinds = ("weight", "exp_avg", "exp_avg_sq", "step")
    assert set(tensors) == {f"{kind}/{name}" for kind in kinds for name in ("weight", "bias")}
    tensors["weight/bias"].fill_(4.0)
    assert model.bias.tolist() == [4.0, 4.0, 4.0]


def test_the_learning_rate_warms_up_and_ends_at_the_final_ratio() -> None:
    config = OptimizerConfig(learning_rate=2.0, warmup_steps=4, final_ratio=0.5)
    assert [learning_rate(config, step, 20) for step in (1, 4)] == [0.5, 2.0]
    assert learning_rate(config, 12, 20) == pytest.approx(1.5)
    assert learning_rate(config, 20, 20) == pytest.approx(1.0)
    assert learning_rate(OptimizerConfig(learning_rate=2.0, warmup_steps=0), 1, 1) == pytest.approx(0.2)
