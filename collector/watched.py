"""A source that may hang, read in a thread of its own: the agent takes the newest reading and never waits.

A value older than its source allows is dropped, never frozen. A call that does not come back leaves its thread behind
(a driver cannot be interrupted) and makes this one source stale; everything else goes on.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from everstep.collector.samples import Sample, SampleSource
from everstep.core.clock import Clock, SteadyClock
from everstep.core.errors import EverstepError
from everstep.core.metrics.agent import AGENT_SOURCES

STOP_TIMEOUT_S = 0.5
RETRY_S = 1.0
TELL_AGAIN_S = 600.0
MAX_KINDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one call of a source gave: `at` by the wall clock, `begun` by the clock of the watch, both when it began."""

    at: float
    begun: float
    samples: tuple[Sample, ...]


class WatchedSource:
    """`name` is one of `AGENT_SOURCES`; several devices of one kind share it, `device` tells their log lines apart.

    `clock` measures ages and deadlines (a `SteadyClock` in the agent). After an error the next call comes `retry_s`
    later, or an interval if that is longer. Everything public is for one thread, the agent's.
    """

    def __init__(
        self,
        name: str,
        source: SampleSource,
        *,
        interval_s: float,
        deadline_s: float,
        clock: Clock | None = None,
        device: str = "",
        retry_s: float = RETRY_S,
    ) -> None:
        if name not in AGENT_SOURCES:
            raise ValueError(f"source {name!r} is not in core.metrics.agent.AGENT_SOURCES")
        self.name = name
        self._source = source
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._max_age_s = max(2 * interval_s, deadline_s)
        self._clock = clock if clock is not None else SteadyClock()
        self._device = device
        self._retry_s = max(retry_s, interval_s)
        self._log = structlog.get_logger().bind(source=name, **({"device": device} if device else {}))
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._reading: Reading | None = None
        self._call = 0
        self._begun: float | None = None  # of the call that is running now
        self._last_s = 0.0
        self._failing = False
        self._is_single = False  # of a single reading it does not matter how long others took
        self._told: dict[str, float] = {}
        self._untold_back = False
        self._late_call = 0
        self._num_errors = 0  # written by the thread
        self._num_timeouts = 0  # written by the reader

    def start(self) -> None:
        """Begin to read; does nothing while the thread of an earlier start lives, stuck or not."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._is_single = False
            self._run_thread(self._loop)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Ask the thread to end and wait a little; False when it is stuck and stays behind as a daemon."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def ask_to_stop(self) -> None:
        """As `stop` without waiting."""
        self._stopping.set()

    def begin_once(self) -> None:
        """Start one reading and none after it."""
        if self._thread is None or not self._thread.is_alive():
            self._is_single = True
            self._run_thread(self._read)

    def wait_once(self) -> None:
        """Wait for what `begin_once` started, until the deadline at most."""
        if self._thread is not None:
            self._thread.join(self._deadline_s)

    def sample_once(self) -> tuple[Sample, ...]:
        """One reading, for which it waits until the deadline at most; empty when it failed or came too late."""
        self.begin_once()
        self.wait_once()
        return tuple(self.collect())

    def newest(self) -> Reading | None:
        """The newest reading while it is fresh. Says and counts once that a call is late. Never blocks."""
        self._look_for_timeout()
        reading = self._reading
        if self._failing or reading is None:
            return None
        is_fresh = self._is_single or self._clock.now() - reading.begun < self._max_age_s
        return reading if is_fresh else None

    def collect(self) -> Iterable[Sample]:
        """The samples of the newest reading while it is fresh."""
        reading = self.newest()
        return reading.samples if reading is not None else ()

    @property
    def is_up(self) -> bool | None:
        """Whether the newest reading is fresh; None while the first one is under way and in time."""
        if self.newest() is not None:
            return True
        waiting = self._reading is None and not self._failing and self._late_call != self._call
        return None if waiting or self._call == 0 else False

    @property
    def read_at(self) -> float | None:
        """When the newest good reading began, by the wall clock; however old it is."""
        reading = self._reading
        return reading.at if reading is not None else None

    @property
    def num_timeouts(self) -> int:
        return self._num_timeouts

    @property
    def num_errors(self) -> int:
        return self._num_errors

    @property
    def duration_s(self) -> float:
        """How long the last call took, or the running one has been running if that is longer."""
        begun = self._begun
        return max(self._last_s, self._clock.now() - begun if begun is not None else 0.0)

    def _run_thread(self, target: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=target, name=f"source {self.name} {self._device}", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        due = time.monotonic()
        while True:
            is_good = self._read()
            now = time.monotonic()
            due = max(due + self._interval_s, now) if is_good else now + self._retry_s
            if self._stopping.wait(due - now):
                return

    def _read(self) -> bool:
        at, begun = time.time(), self._clock.now()
        self._call += 1
        self._begun = begun
        try:
            samples = tuple(self._source.collect())
        except Exception as error:  # noqa: BLE001 - the boundary of a source's thread: logged, counted, tried again
            self._failing = True
            self._num_errors += 1
            self._say_failed(error)
            return False
        else:
            self._reading = Reading(at=at, begun=begun, samples=samples)
            if self._failing or self._late_call == self._call:
                self._say_back()
            self._failing = False
            return True
        finally:
            self._last_s = self._clock.now() - begun
            self._begun = None

    def _look_for_timeout(self) -> None:
        begun, call = self._begun, self._call
        if begun is None or call == self._late_call or self._clock.now() - begun < self._deadline_s:
            return
        self._late_call = call
        self._num_timeouts += 1
        if self._is_news("timeout"):
            self._log.warning(
                "source_hangs",
                deadline_s=self._deadline_s,
                mend="its series are absent until the call returns; look at the device and at the kernel log",
            )

    def _say_failed(self, error: Exception) -> None:
        if isinstance(error, EverstepError):
            if self._is_news(error.problem):
                self._log.warning("source_failed", problem=error.problem, mend=error.mend)
        elif self._is_news(type(error).__name__):
            self._log.error("source_failed", mend="report this; its series are absent", exc_info=error)

    def _say_back(self) -> None:
        if self._untold_back:
            self._untold_back = False
            self._log.info("source_back")

    def _is_news(self, kind: str) -> bool:
        """Whether this kind of trouble has not been told for a while: a source that flaps must not fill the log."""
        now = self._clock.now()
        if now - self._told.get(kind, -math.inf) < TELL_AGAIN_S or len(self._told) >= MAX_KINDS:
            return False
        self._told[kind] = now
        self._untold_back = True
        return True


def read_all_once(sources: Sequence[WatchedSource]) -> None:
    """One reading of each, all at the same time; waits for each until its own deadline at most."""
    for source in sources:
        source.begin_once()
    for source in sources:
        source.wait_once()
