"""One rank's state as one flat buffer: a short JSON head, then the tensors' bytes back to back.

One buffer means one write, one checksum and one message to the buddy.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from everstep.core.errors import ManifestError
from everstep.trainer.state import TrainState, random_state, restore_random_state

SHARD_FILE = "shard.bin"
_PREFIX = struct.Struct("<8sQ")
_MAGIC = b"ESSHARD1"
_ALIGN = 64


class ShardCodec:
    """Packs a fixed set of float32 tensors; reuses its buffer, so a packed shard is valid until the next `pack`."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        self._floats = sum(tensor.numel() for tensor in tensors.values())
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def pack(self, state: TrainState) -> Tensor:
        """The state of this rank as bytes (uint8, a view of the codec's own buffer)."""
        head = json.dumps({"state": state.as_json(), "random": random_state(), "shapes": self._shapes}).encode()
        start = math.ceil((_PREFIX.size + len(head)) / _ALIGN) * _ALIGN
        size = start + 4 * self._floats
        if len(self._buffer) < size:
            self._buffer = torch.zeros(size + 4096, dtype=torch.uint8)
        view = self._buffer.numpy().data
        _PREFIX.pack_into(view, 0, _MAGIC, len(head))
        view[_PREFIX.size : _PREFIX.size + len(head)] = head
        body = self._buffer[start:size].view(torch.float32)
        with torch.no_grad():
            torch.cat([tensor.detach().reshape(-1) for tensor in self._tensors.values()], out=body)
        return self._buffer[:size]

    def unpack(self, shard: Tensor) -> TrainState:
        """Write a packed shard into the tensors. Raises `ManifestError` when it belongs to another model."""
        head, start = _head(shard)
        if head.get("shapes") != self._shapes:
            raise ManifestError(
                "the memory copy was written by a model of another shape", mend="start in a new output_dir"
            )
        state = TrainState.from_json(head["state"])
        body = shard[start : start + 4 * self._floats].clone().view(torch.float32)
        with torch.no_grad():
            pieces = body.split([tensor.numel() for tensor in self._tensors.values()])
            for tensor, piece in zip(self._tensors.values(), pieces, strict=True):
                tensor.copy_(piece.view(tensor.shape))
        restore_random_state(head["random"])
        return state


def _head(shard: Tensor) -> tuple[dict[str, Any], int]:
    view = shard.numpy().data
    magic, length = _PREFIX.unpack_from(view, 0)
    if magic != _MAGIC:
        raise ManifestError("the memory copy is not a shard of this version", mend="use another copy")
    start = math.ceil((_PREFIX.size + length) / _ALIGN) * _ALIGN
    return json.loads(bytes(view[_PREFIX.size : _PREFIX.size + length])), start
