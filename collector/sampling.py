"""All that the node's sources tell, gated and merged: the stream behind `/metrics` and behind the push.

Each reading passes the gate once, however often it is asked for, and is pushed once, under the time at which it was
made: rates stay true although the sources keep their own beat.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from everstep.collector.gate import Admitted, Gate, Rejections, SeriesKey, merge
from everstep.collector.gpu.group import Gpus
from everstep.collector.samples import Dated, Sample
from everstep.collector.watched import STOP_TIMEOUT_S, Reading, WatchedSource, read_all_once
from everstep.core.clock import Clock, SystemClock
from everstep.core.metrics.agent import PROBE_SOURCES


@dataclass(slots=True)
class _Gated:
    """The newest reading of a source as the gate let it through."""

    reading: Reading
    admitted: Admitted
    is_pushed: bool = False


class Sampling:
    """Starts and stops the sources; both `collect` and `drain` are for the agent's thread and never wait."""

    def __init__(
        self, sources: Sequence[WatchedSource], gpus: Gpus, rejections: Rejections, clock: Clock | None = None
    ) -> None:
        """`clock` is the wall clock."""
        self._fixed = tuple(sources)
        self._gpus = gpus
        self._rejections = rejections
        self._gate = Gate(rejections)
        self._clock = clock if clock is not None else SystemClock()
        self._gated: dict[WatchedSource, _Gated] = {}
        self._merged: Admitted = {}
        self._twice: list[SeriesKey] = []

    @property
    def gpus(self) -> Gpus:
        return self._gpus

    @property
    def sources(self) -> tuple[WatchedSource, ...]:
        return (*self._fixed, *self._gpus.sources)

    def start(self) -> None:
        for source in self._fixed:
            source.start()
        self._gpus.start()

    def ask_to_stop(self) -> None:
        """No reading is begun any more; what has been read stays."""
        for source in self.sources:
            source.ask_to_stop()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Within the timeout; a thread that is stuck stays behind as a daemon."""
        self.ask_to_stop()
        end = time.monotonic() + timeout_s
        for source in self.sources:
            source.stop(max(end - time.monotonic(), 0.0))
        self._gpus.close()

    def read_once(self) -> None:
        """One reading of every source, each waited for until its deadline."""
        for source in self._fixed:
            source.begin_once()
        self._gpus.read_once()
        read_all_once(self._fixed)

    def collect(self) -> Iterator[Sample]:
        """What is true now."""
        start = time.perf_counter()
        self._look()
        yield from self._merged.values()
        yield from self._told_by_the_agent(start)

    def drain(self) -> Iterator[Sample | Dated]:
        """As `collect`, with each reading given out once; a series without news lives on."""
        start = time.perf_counter()
        for gated in self._look():
            told_once = gated.admitted if not self._twice else _without(gated.admitted, self._twice)
            yield Dated(samples=told_once.values(), at=None if gated.is_pushed else gated.reading.at)
            gated.is_pushed = True
        for key in self._twice:
            yield self._merged[key]
        yield from self._told_by_the_agent(start)

    def _look(self) -> list[_Gated]:
        """Fresh readings of all sources; new ones go through the gate."""
        fresh: list[_Gated] = []
        has_news = False
        for source in self.sources:
            reading = source.newest()
            if reading is None:
                continue
            gated = self._gated.get(source)
            if gated is None or gated.reading is not reading:
                admitted = self._gate.admit(reading.samples, at=reading.begun, now=self._clock.now())
                gated = self._gated[source] = _Gated(reading, admitted)
                has_news = True
            fresh.append(gated)
        self._merged, self._twice = merge([gated.admitted for gated in fresh])
        if has_news:
            for metric, _, labels in self._twice:
                self._rejections.count(metric, "duplicate", dict(labels))
        return fresh

    def _told_by_the_agent(self, start: float) -> Iterator[Sample]:
        yield from self._gpus.collect()
        yield from source_health(self.sources)
        yield from self._rejections.collect()
        durations = (source.duration_s for source in self.sources if source.name not in PROBE_SOURCES)
        slowest_s = max(durations, default=0.0)
        yield Sample(metric="everstep_agent_scrape_duration_seconds", value=slowest_s + time.perf_counter() - start)


def _without(admitted: Admitted, keys: Sequence[SeriesKey]) -> Admitted:
    return {key: sample for key, sample in admitted.items() if key not in keys}


def source_health(sources: Iterable[WatchedSource]) -> Iterator[Sample]:
    """Whether each kind of source answers (with several devices: all of them), and how often it did not."""
    up: dict[str, bool] = {}
    failures: Counter[tuple[str, str]] = Counter()
    for source in sources:
        is_up = source.is_up
        if is_up is not None:
            up[source.name] = up.get(source.name, True) and is_up
        failures[source.name, "timeout"] += source.num_timeouts
        failures[source.name, "error"] += source.num_errors
    for name, is_up in up.items():
        yield Sample(metric="everstep_agent_source_up", labels=(("source", name),), value=float(is_up))
    for (name, reason), count in failures.items():
        yield Sample(
            metric="everstep_agent_source_failures_total",
            labels=(("source", name), ("reason", reason)),
            value=float(count),
        )
