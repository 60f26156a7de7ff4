"""A bounded queue between two stages: a full one holds its producer back, and the end of the pipeline wakes both."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

from everstep.trainer.data.halt import POLL_S, Halt
from everstep.trainer.data.timing import Activity, StageClock

T = TypeVar("T")


class Channel(Generic[T]):
    """First in, first out. `put` and `get` raise `Halted` after the pipeline's end."""

    def __init__(self, halt: Halt, *, capacity: int) -> None:
        self.capacity = capacity
        self._halt = halt
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        halt.wakes(self._wake)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T, clock: StageClock) -> None:
        with self._changed, clock.during(Activity.OUTPUT):
            while len(self._items) >= self.capacity:
                self._halt.check()
                self._changed.wait(POLL_S)
            self._halt.check()
            self._items.append(item)
            self._changed.notify_all()

    def get(self, clock: StageClock, timeout_s: float | None = None) -> T:
        """Raises `TimeoutError` when nothing came for `timeout_s`."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed, clock.during(Activity.INPUT):
            while not self._items:
                self._halt.check()
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError
                self._changed.wait(POLL_S)
            self._halt.check()
            item = self._items.popleft()
            self._changed.notify_all()
        return item

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
