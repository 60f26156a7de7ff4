"""Fourth stage's work, on the device: bytes are packed into windows, shifted into inputs and targets, and masked."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from everstep.trainer.config import MaskConfig

_COUNTER = (0, 0, 2, 0)
"""Keeps the masks' random numbers apart from those of `Epoch`, whose key has the same form."""


def pack(rows: Tensor, *, context: int) -> Tensor:
    """Windows [n, context + 1] of token ids from bytes of any shape."""
    return rows.reshape(-1, context + 1).long()


def shift(windows: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and targets, each [n, context]: a target is the byte that follows its input.

    >>> [each.tolist() for each in shift(torch.tensor([[5, 6, 7]]))]
    [[[5, 6]], [[6, 7]]]
    """
    return windows[:, :-1], windows[:, 1:]


class SpanMask:
    """Hides spans of the inputs behind one byte; the targets stay whole.

    The window is cut into equal segments with one span in each, so that exactly `ratio` of it (rounded to whole spans)
    is hidden. Drawn from (seed, batch, place in the global batch): the same for every number of ranks.
    """

    def __init__(self, config: MaskConfig, *, context: int, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._num_spans = max(1, round(config.ratio * context / config.span))
        self._segment = context // self._num_spans

    def starts(self, index: int, *, batch_size: int) -> Tensor:
        """[batch_size, spans]: where in its segment each span of a global batch starts."""
        generator = np.random.Generator(np.random.Philox(key=[self._seed, index], counter=_COUNTER))
        room = max(self._segment - self._config.span, 0) + 1
        return torch.from_numpy(generator.integers(room, size=(batch_size, self._num_spans)))

    def apply(self, inputs: Tensor, starts: Tensor) -> Tensor:
        """A copy of `inputs` [n, context] with the spans at `starts` [n, spans] hidden; on the device of both."""
        place = torch.arange(inputs.shape[1], device=inputs.device)
        segment = (place // self._segment).clamp(max=self._num_spans - 1)
        behind = place - segment * self._segment - starts[:, segment]
        return inputs.masked_fill((behind >= 0) & (behind < self._config.span), self._config.byte)
