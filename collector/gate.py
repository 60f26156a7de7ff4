"""The range gate: what is physically impossible, told twice or moved backwards does not leave the node, and is counted.

The service judges again what arrives, since other exporters send too; the bounds are the same rows of the metric table.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence

import structlog

from everstep.collector.samples import Labels, Sample
from everstep.core.metrics import METRIC_BY_NAME, RATE_SLACK_S, Metric, MetricKind

TELL_AGAIN_S = 600.0
FORGET_AFTER_S = 900.0
BLANK = 9.2e18
"""Counters at or above are the "no value" markers of 63 and 64 bits."""

SeriesKey = tuple[str, str, Labels]
Admitted = dict[SeriesKey, Sample]


class Rejections:
    """Rejected samples by (metric, reason); may be counted from any thread. A kind is logged every ten minutes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._told: dict[tuple[str, str], float] = {}
        self._log = structlog.get_logger()

    def count(self, metric: str, reason: str, what: object) -> None:
        """`what` describes the sample in the log."""
        now = time.monotonic()
        with self._lock:
            self._counts[metric, reason] += 1
            is_news = now - self._told.get((metric, reason), -math.inf) >= TELL_AGAIN_S
            if is_news:
                self._told[metric, reason] = now
        if is_news:
            self._log.warning(
                "sample_rejected",
                metric=metric,
                reason=reason,
                sample=str(what),
                mend="one is noise; if everstep_agent_samples_rejected_total rises, suspect the device's driver",
            )

    def collect(self) -> Iterable[Sample]:
        with self._lock:
            counts = dict(self._counts)
        for (metric, reason), count in counts.items():
            yield Sample(
                metric="everstep_agent_samples_rejected_total",
                labels=(("metric", metric), ("reason", reason)),
                value=float(count),
            )


def is_possible(metric: Metric, value: float) -> bool:
    """What one value tells by itself, without the one before it: counts are judged by their rise later."""
    if metric.gate.per_second:
        return 0 <= value < BLANK
    if metric.kind is MetricKind.HISTOGRAM:
        return math.isfinite(value)
    return metric.admits(value)


class _Known:
    """What the gate remembers of a series: its newest admitted value and when it was read."""

    __slots__ = ("at", "bound", "metric", "value")

    def __init__(self, sample: Sample) -> None:
        self.metric: Metric = METRIC_BY_NAME[sample.metric]
        self.bound = _bound_key(self.metric, sample.labels)
        self.value = math.nan
        self.at = -math.inf


class Gate:
    """Judges the readings of one agent; one thread only, but for `rejections`."""

    def __init__(self, rejections: Rejections) -> None:
        self._rejections = rejections
        self._series: dict[SeriesKey, _Known] = {}
        self._swept_at = -math.inf

    def admit(self, samples: Iterable[Sample], *, at: float, now: float) -> Admitted:
        """What may leave of one reading; `at` is its time by a steady clock, `now` by the wall clock."""
        admitted: Admitted = {}
        self._sweep(at)
        for sample in samples:
            key = (sample.metric, sample.suffix, sample.labels)
            known = self._series.get(key)
            if known is None:
                known = self._series[key] = _Known(sample)
            elif known.at == at and self._is_lower(sample, admitted.get(key)):
                continue
            reason = self._refusal(known, sample, at, now)
            if reason:
                self._rejections.count(sample.metric, reason, f"{sample.value:g} of {dict(sample.labels)}")
                continue
            known.value, known.at = sample.value, at
            admitted[key] = sample
        return admitted

    def _is_lower(self, sample: Sample, before: Sample | None) -> bool:
        """Whether the series was told before in this reading, which is counted, with a value at least as high."""
        if before is None:
            return False
        self._rejections.count(sample.metric, "duplicate", dict(sample.labels))
        return sample.value <= before.value

    def _refusal(self, known: _Known, sample: Sample, at: float, now: float) -> str:
        """Why the sample stays here; empty when it may leave."""
        metric, value = known.metric, sample.value
        if metric.kind is MetricKind.HISTOGRAM:
            return "" if math.isfinite(value) else "range"
        if metric.gate.per_second:
            return self._refusal_of_count(known, value, at)
        if metric.admits(value, upper=self._upper(known), now=now):
            return ""
        return "clock" if metric.gate.from_now and math.isfinite(value) else "range"

    def _refusal_of_count(self, known: _Known, value: float, at: float) -> str:
        if not 0 <= value < BLANK:
            return "range"
        if known.at == -math.inf or value == known.value:
            return ""
        is_fall = value < known.value
        rise = value if is_fall else value - known.value  # a counter that falls has begun again at zero
        if known.metric.admits(rise / (at - known.at + RATE_SLACK_S), upper=self._upper(known)):
            return ""
        return "reset" if is_fall else "range"

    def _upper(self, known: _Known) -> float | None:
        bound = self._series.get(known.bound) if known.bound is not None else None
        return bound.value if bound is not None else None

    def _sweep(self, at: float) -> None:
        """Forget series that have not been seen for a while."""
        if at - self._swept_at < FORGET_AFTER_S:
            return
        self._swept_at = at
        self._series = {key: known for key, known in self._series.items() if at - known.at < FORGET_AFTER_S}


def merge(readings: Sequence[Admitted]) -> tuple[Admitted, list[SeriesKey]]:
    """One set of series, and the keys that stood in more than one reading: of those the highest value counts."""
    merged: Admitted = {}
    for reading in readings:
        merged.update(reading)
    if len(merged) == sum(map(len, readings)):
        return merged, []
    times = Counter(key for reading in readings for key in reading)
    twice = [key for key, count in times.items() if count > 1]
    for key in twice:
        merged[key] = max((reading[key] for reading in readings if key in reading), key=lambda sample: sample.value)
    return merged, twice


def _bound_key(metric: Metric, labels: Labels) -> SeriesKey | None:
    """The series of the same entity that bounds this one: same values of the labels that the bound has."""
    if metric.gate_by is None:
        return None
    own = METRIC_BY_NAME[metric.gate_by].label_names
    return metric.gate_by, "", tuple((name, value) for name, value in labels if name in own)
