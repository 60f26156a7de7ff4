"""The one NVML session of the agent, and what NVML's error codes mean for who asked.

nvidia-ml-py is imported when a library has been found, not before: a node without a driver does not pay for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from everstep.core.errors import EverstepError

LIBRARY = "libnvidia-ml.so.1"
RENEW_PATIENCE_S = 3.0

TIMEOUT = 10
NOT_OFFERED = frozenset({2, 3, 4, 6, 13, 21, 22, 25, 26})
"""This device, driver or user cannot have this value: its series is absent and nothing is wrong."""
GPU_GONE = frozenset({15, 16, 28})
"""The GPU is lost, or answers only after a reset."""
SESSION_GONE = frozenset({1, 9, 18})
"""The driver went away below us: everything must be opened again."""


class NvmlAbsentError(EverstepError):
    """There is no NVML library on this node."""


class NvmlError(EverstepError):
    """The driver answered with an error; the session may be open or not."""


class GpuLostError(EverstepError):
    """One GPU does not answer any more; the others do."""


class NvmlSession:
    """`open` and `renew` are for one thread, the inventory's; `use` is for all."""

    def __init__(self, library: Path | None) -> None:
        self._library = str(library) if library is not None else LIBRARY
        self._api: Any = None
        self._condition = threading.Condition()
        self._num_users = 0
        self._is_open = False
        self.generation = 0
        """Grows with every opening: handles of an older one are void."""

    def open(self) -> None:
        """Does nothing when the session is open. Raises `NvmlAbsentError` or `NvmlError`."""
        if self._is_open:
            return
        api = self._load()
        self._close_old(api)
        try:
            api.nvmlInit()
        except api.NVMLError as error:
            raise NvmlError(
                f"the NVIDIA driver cannot be used ({error})", mend="look at `nvidia-smi` and the kernel log"
            ) from None
        self.generation += 1
        self._is_open = True

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """The bindings, while the session stays open. Raises `NvmlError` when there is none, or for a lost driver."""
        with self._condition:
            if not self._is_open:
                raise NvmlError("no NVML session", mend="the agent opens one as soon as the driver answers")
            self._num_users += 1
        try:
            yield self._api
        except self._api.NVMLError as error:
            if error.value in SESSION_GONE:
                self._is_open = False
            raise NvmlError(f"NVML: {error}", mend="look at `nvidia-smi` and the kernel log") from None
        finally:
            with self._condition:
                self._num_users -= 1
                self._condition.notify_all()

    def close(self) -> None:
        """For the end of the agent; leaves a session open in which a call is stuck."""
        if self._is_open and self._num_users == 0:
            self._is_open = False
            with contextlib.suppress(self._api.NVMLError):
                self._api.nvmlShutdown()

    def _load(self) -> Any:
        if self._api is None:
            try:
                library = ctypes.CDLL(self._library)
            except OSError as error:
                raise NvmlAbsentError(
                    f"no NVML library ({error})",
                    mend="install the NVIDIA driver, set agent.nvml_library, or agent.gpus_expected: 0 on a CPU node",
                ) from None
            import pynvml

            pynvml.nvmlLib = library  # what the bindings would otherwise look up by its usual name
            self._api = pynvml
        return self._api

    def _close_old(self, api: Any) -> None:
        """End the session that the driver has lost, when nobody is inside it any more."""
        if self.generation == 0:
            return
        end = time.monotonic() + RENEW_PATIENCE_S
        with self._condition:
            if not self._condition.wait_for(lambda: self._num_users == 0, max(end - time.monotonic(), 0)):
                raise NvmlError(
                    "the driver was lost while a call of it hangs, so NVML cannot be opened again",
                    mend="restart the agent when the driver is back",
                )
        with contextlib.suppress(api.NVMLError):
            api.nvmlShutdown()


def code_of(error: Exception) -> int:
    """NVML's number of an error that the bindings raised."""
    return int(getattr(error, "value", -1))
