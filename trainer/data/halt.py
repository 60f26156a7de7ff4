"""The end that all stages of a pipeline share: a stop, or the first error of any of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from everstep.core.errors import EverstepError

POLL_S = 0.1
"""No wait of a stage is longer than this before it looks again whether the pipeline has ended."""


class DataError(EverstepError):
    """Data that cannot be read, or a pipeline that gives none."""


class Halted(Exception):  # noqa: N818 - a signal between stages, not an error
    """The pipeline has ended; a stage that sees this returns."""


class Halt:
    """Set once. `error` is the first one, or None after a plain stop."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []
        self.error: EverstepError | None = None

    @property
    def halted(self) -> bool:
        return self._event.is_set()

    def stop(self, error: EverstepError | None = None) -> None:
        """End the pipeline; later calls change nothing."""
        with self._lock:
            if self._event.is_set():
                return
            self.error = error
            self._event.set()
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    def wakes(self, waker: Callable[[], None]) -> None:
        """Call `waker` at the end, so that who waits elsewhere notices at once."""
        with self._lock:
            self._wakers.append(waker)

    def check(self) -> None:
        """Raises `Halted` after the end."""
        if self._event.is_set():
            raise Halted

    def sleep(self, seconds: float) -> None:
        """Raises `Halted` when the end comes first."""
        if self._event.wait(seconds):
            raise Halted
