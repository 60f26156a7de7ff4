"""Threads for calls that wait on the network; none of them keeps the process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonWorkers(Executor):
    """One daemon thread a call. The standard pool would hold the exit up until a recovery has run to its end."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - thread boundary: whoever asks for the result gets it
                future.set_exception(error)

        threading.Thread(target=call, name=f"everstep-{getattr(fn, '__name__', 'worker')}", daemon=True).start()
        return future
