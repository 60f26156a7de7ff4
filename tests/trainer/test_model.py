from __future__ import annotations

import math

import pytest
import torch

from everstep.trainer.config import ModelConfig
from everstep.trainer.model import VOCABULARY, Decoder, flops_per_token, initialise, weighted_loss

SMALL = ModelConfig(width=32, layers=2, heads=4, kv_heads=2, hidden=48, context=16)


def _model(seed: int) -> Decoder:
    model = Decoder(SMALL)
    initialise(model, seed=seed, layers=SMALL.layers)
    return model


def test_initial_weights_are_a_function_of_the_seed() -> None:
    first, again, other = (_model(seed).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding"], other["embedding"])
    assert not torch.equal(first["layers.0.attention.qkv"], first["layers.1.attention.qkv"])


def test_an_untrained_model_is_about_as_good_as_chance() -> None:
    tokens = torch.arange(17).remainder(VOCABULARY).repeat(2, 1)
    logits = _model(1)(tokens[:, :-1])
    assert logits.shape == (2, 16, VOCABULARY)
    loss = weighted_loss(logits, tokens[:, 1:], torch.ones(2, 16)) / 32
    assert loss.item() == pytest.approx(math.log(VOCABULARY), abs=0.3)


def test_no_position_sees_a_later_byte() -> None:
    model, tokens = _model(1), torch.arange(16).repeat(1, 1)
    changed = tokens.clone()
    changed[0, 10:] += 100
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :10], after[:, :10])
    assert not torch.equal(before[:, 10:], after[:, 10:])


def test_positions_matter() -> None:
    logits = _model(1)(torch.tensor([[7, 9, 9, 9]]))
    assert not torch.allclose(logits[0, 2], logits[0, 3])


def test_a_nan_weight_makes_the_loss_nan() -> None:
    weights = torch.ones(1, 4)
    weights[0, 2] = math.nan
    loss = weighted_loss(torch.zeros(1, 4, VOCABULARY), torch.zeros(1, 4, dtype=torch.int64), weights)
    assert math.isnan(loss.item())


def test_flops_are_six_per_weight_and_token_plus_attention() -> None:
    weights = 2 * (32 * 64 + 32 * 32 + 3 * 32 * 48) + 256 * 32
    assert flops_per_token(SMALL) == 6 * weights + 6 * 2 * 32 * 16
