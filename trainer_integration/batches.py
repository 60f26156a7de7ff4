"""What can be told of a batch of any shape: how many tokens it holds and whether all its numbers are finite.

Works on what tensors can do, so that torch need not be imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def tensors_of(batch: object) -> Iterator[Any]:
    """Every tensor in nested mappings, lists and tuples, in their order."""
    if hasattr(batch, "is_floating_point"):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_of(value)


def count_tokens(batch: object) -> int:
    """Batch size times length: the elements of `input_ids`, else of the first tensor [batch, length] of integers."""
    if isinstance(batch, Mapping) and "input_ids" in batch:
        return int(batch["input_ids"].numel())
    texts = (each for each in tensors_of(batch) if not each.is_floating_point() and each.dim() > 1)
    return next((int(text.numel()) for text in texts), 0)


def is_finite(batch: object) -> bool:
    """Whether no floating-point number of the batch is NaN or infinite; waits for the device."""
    return all(bool(each.isfinite().all()) for each in tensors_of(batch) if each.is_floating_point())
