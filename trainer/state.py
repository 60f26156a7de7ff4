"""What a step leaves behind besides tensors; travels in every checkpoint and makes a resume exact."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from everstep.core.errors import ManifestError
from everstep.trainer.data import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainState:
    """`step` steps are finished, the last with `loss`; `corpus` is the fingerprint of the text."""

    step: int = 0
    loss: float = 0.0
    tokens: int = 0
    corpus: int = 0
    position: Position = field(default_factory=Position)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainState:
        """Raises `ManifestError` when it was written by another version."""
        try:
            position = dict(data["position"])
            position["skipped"] = tuple(position["skipped"])
            return cls(**{**data, "position": Position(**position)})
        except (KeyError, TypeError) as error:
            raise ManifestError("the checkpoint's data position is not readable", mend="use another copy") from error


def random_state() -> str:
    """State of torch's CPU generator as text."""
    return base64.b64encode(bytes(torch.get_rng_state().numpy())).decode()


def restore_random_state(text: str) -> None:
    torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8))
