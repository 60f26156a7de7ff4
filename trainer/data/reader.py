"""One shard from a store, whatever the store does: bounded in time, repeated after errors, checked for its size."""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty, SimpleQueue

from everstep.trainer.data.halt import POLL_S, DataError, Halt
from everstep.trainer.data.shard import Shard
from everstep.trainer.data.store import Store

_LOGGER = logging.getLogger("everstep.trainer")
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0


class ShardReader:
    """Used by several threads at once. Every attempt has a thread of its own: a read that hangs cannot be interrupted,
    so it is left behind (`num_lost`) and its late answer is dropped.
    """

    def __init__(self, store: Store, halt: Halt, *, attempts: int, timeout_s: float) -> None:
        self._store = store
        self._halt = halt
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._left: list[threading.Thread] = []
        self.num_reads = 0
        self.num_retries = 0

    @property
    def num_lost(self) -> int:
        """Reads given up that still hang."""
        with self._lock:
            self._left = [thread for thread in self._left if thread.is_alive()]
            return len(self._left)

    @property
    def longest_s(self) -> float:
        """The most that `read` can take."""
        return self._attempts * (self._timeout_s + LONGEST_PAUSE_S)

    def read(self, shard: Shard) -> bytes:
        """Raises `DataError` that names the shard after the last attempt, `Halted` at the pipeline's end."""
        for attempt in range(1, self._attempts + 1):
            try:
                return self._attempt(shard)
            except _PERMANENT as error:
                raise _unreadable(
                    shard, f"{type(error).__name__}: {error}", "restore it or correct its access"
                ) from error
            except OSError as error:
                if attempt == self._attempts:
                    raise _unreadable(
                        shard, f"{error}, {attempt} attempts", "check the store, or raise data.prefetch.timeout_s"
                    ) from error
                _LOGGER.warning("reading shard %s: %s; trying again", shard.name, error)
            with self._lock:
                self.num_retries += 1
            self._halt.sleep(min(FIRST_PAUSE_S * 2 ** (attempt - 1), LONGEST_PAUSE_S))
        raise AssertionError("attempts is at least 1")

    def _attempt(self, shard: Shard) -> bytes:
        """Raises `OSError` for everything that another attempt may mend."""
        with self._lock:
            self.num_reads += 1
        answer: SimpleQueue[bytes | BaseException] = SimpleQueue()
        thread = threading.Thread(target=self._ask, args=(shard, answer), name=f"data-read-{shard.name}", daemon=True)
        thread.start()
        result = self._await(answer, thread)
        if isinstance(result, OSError):
            raise result
        if isinstance(result, BaseException):
            raise OSError(f"{type(result).__name__}: {result}") from result
        if len(result) != shard.size:
            raise OSError(f"it has {len(result)} bytes and was listed with {shard.size}")
        return result

    def _ask(self, shard: Shard, answer: SimpleQueue[bytes | BaseException]) -> None:
        try:
            answer.put(self._store.read(shard))
        except Exception as error:  # noqa: BLE001 - thread boundary: a store's client raises what it likes; `read` judges
            answer.put(error)

    def _await(self, answer: SimpleQueue[bytes | BaseException], thread: threading.Thread) -> bytes | BaseException:
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                return answer.get(timeout=max(0.0, min(POLL_S, until - time.monotonic())))
            except Empty:
                if self._halt.halted or time.monotonic() >= until:
                    with self._lock:
                        self._left.append(thread)
                    self._halt.check()
                    raise TimeoutError(f"no answer for {self._timeout_s:g} s") from None


def _unreadable(shard: Shard, why: str, mend: str) -> DataError:
    return DataError(f"cannot read shard {shard.name} ({why})", mend=mend)
