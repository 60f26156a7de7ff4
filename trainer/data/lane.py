"""Third stage's road from host to device: pinned memory and a side stream on a GPU, nothing at all on a CPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor


class Lane(Protocol):
    """`send` and `work` are used by the stages' threads, `mark` after their work, `receive` by the training thread."""

    def send(self, rows: Tensor) -> Tensor: ...

    def work(self) -> AbstractContextManager[object]:
        """Where work on the device is issued, apart from the training's own."""
        ...

    def mark(self) -> torch.cuda.Event | None:
        """A point in the lane that `receive` waits for."""
        ...

    def receive(self, mark: torch.cuda.Event | None, tensors: tuple[Tensor, ...]) -> None:
        """Let the training's stream wait, without blocking the host."""
        ...


class HostLane:
    def send(self, rows: Tensor) -> Tensor:
        return rows

    def work(self) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self) -> torch.cuda.Event | None:
        return None

    def receive(self, mark: torch.cuda.Event | None, tensors: tuple[Tensor, ...]) -> None:
        pass


class GpuLane:
    """Copies from pinned memory overlap with the training; torch's allocator keeps a block until its copy ended."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def send(self, rows: Tensor) -> Tensor:
        with self.work():
            return rows.pin_memory().to(self._device, non_blocking=True)

    def work(self) -> AbstractContextManager[object]:
        stream: AbstractContextManager[object] = torch.cuda.stream(self._stream)
        return stream

    def mark(self) -> torch.cuda.Event | None:
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def receive(self, mark: torch.cuda.Event | None, tensors: tuple[Tensor, ...]) -> None:
        current = torch.cuda.current_stream(self._device)
        if mark is not None:
            current.wait_event(mark)
        for tensor in tensors:
            tensor.record_stream(current)


def lane_to(device: torch.device) -> Lane:
    return GpuLane(device) if device.type == "cuda" else HostLane()
