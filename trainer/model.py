"""A small Llama-style decoder over bytes: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Initial weights are a pure function of (seed, parameter name), so that they do not depend on the world size.
"""

from __future__ import annotations

import math
import zlib

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from torch import Tensor, nn

from everstep.trainer.config import ModelConfig

VOCABULARY = 256


class Norm(nn.Module):
    """RMSNorm (Zhang and Sennrich, 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Attention(nn.Module):
    """Causal grouped-query attention (Ainslie et al., 2023) with rotary positions (Su et al., 2021)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self._heads = config.heads
        self._kv_heads = config.kv_heads
        self._size = config.width // config.heads
        rows = (config.heads + 2 * config.kv_heads) * self._size
        self.qkv = nn.Parameter(torch.empty(rows, config.width))
        self.out = nn.Parameter(torch.empty(config.width, config.width))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = F.linear(x, self.qkv).view(batch, length, -1, self._size).transpose(1, 2)
        turned = self._heads + self._kv_heads
        qk = _rotate(heads[:, :turned], cos, sin)
        group = self._heads // self._kv_heads
        keys = qk[:, self._heads :].repeat_interleave(group, dim=1)
        values = heads[:, turned:].repeat_interleave(group, dim=1)
        mixed = F.scaled_dot_product_attention(qk[:, : self._heads], keys, values, is_causal=True)
        return F.linear(mixed.transpose(1, 2).reshape(batch, length, width), self.out)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class FeedForward(nn.Module):
    """SwiGLU (Shazeer, 2020); gate and up projection are one matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(2 * config.hidden, config.width))
        self.down = nn.Parameter(torch.empty(config.width, config.hidden))

    def forward(self, x: Tensor) -> Tensor:
        gate, up = F.linear(x, self.up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down)


class Layer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = Norm(config.width)
        self.attention = Attention(config)
        self.feed_forward_norm = Norm(config.width)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return y


class Decoder(nn.Module):
    """Bytes [batch, length] to logits [batch, length, 256]; weights are not initialised, see `initialise`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(VOCABULARY, config.width))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = Norm(config.width)
        self.head = nn.Parameter(torch.empty(VOCABULARY, config.width))
        size = config.width // config.heads
        rates = config.rope_base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.outer(torch.arange(config.context, dtype=torch.float64), rates)
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.embedding(tokens, self.embedding)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.head)


def initialise(model: nn.Module, *, seed: int, layers: int) -> None:
    """Fill every parameter in place: ones for norms, normal(0, 0.02) else, residual outputs scaled by depth."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
                continue
            deviation = 0.02 / math.sqrt(2 * layers) if name.endswith((".out", ".down")) else 0.02
            generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))  # 32 bits count
            parameter.normal_(0.0, deviation, generator=generator)


def weighted_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Sum over tokens of weight times cross-entropy; shapes [batch, length, 256], [batch, length] twice."""
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum()


def flops_per_token(config: ModelConfig) -> float:
    """Forward and backward floating-point operations for one token: 6 per weight plus attention's products."""
    size = config.width // config.heads
    layer = config.width * (config.heads + 2 * config.kv_heads) * size + config.width**2
    layer += 3 * config.width * config.hidden
    weights = config.layers * layer + VOCABULARY * config.width
    return 6.0 * weights + 6.0 * config.layers * config.width * config.context
