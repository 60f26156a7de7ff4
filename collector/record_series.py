"""The series of one rank record: labels are made once, an unchanged value costs no new object.

What is physically impossible stays here and is counted; a NaN where none may be says that the loop does not tell it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from everstep.collector.gate import Rejections, is_possible
from everstep.collector.samples import Labels, Sample
from everstep.core.metrics import METRIC_BY_NAME, Metric, MetricKind, Scope
from everstep.core.rank_record import SLOTS, RankSnapshot, SlotKey, StepSample

STEPWISE: dict[str, Callable[[StepSample], float]] = {
    "everstep_train_loss": lambda step: step.loss,
    "everstep_train_gradient_norm": lambda step: step.gradient_norm,
    "everstep_train_steps_total": lambda step: float(step.step),
    "everstep_train_step_compute_seconds": lambda step: step.compute,
    "everstep_train_batch_index": lambda step: float(step.batch),
}
"""Metrics with one sample a step, stamped with the step's end."""

_BEFORE_FIRST_STEP = {
    "everstep_train_attempt",
    "everstep_train_state",
    "everstep_train_nonfinite_batch",
    "everstep_checkpoint_last_step",
}
"""Gauges that mean something before a step has ended; the others would show a zero that nobody measured."""

_BY_TIER = {"everstep_checkpoint_last_success_timestamp_seconds", "everstep_checkpoint_duration_seconds"}
"""Only tiers that have been used are shown, those with all their outcomes: an increase shows the first failure too."""


class _Series:
    """One slot; its newest sample is kept for as long as the value stays."""

    __slots__ = ("_labels", "_last", "_metric", "_rejections", "_suffix", "_value", "slot")

    def __init__(self, metric: Metric, suffix: str, labels: Labels, slot: int, rejections: Rejections) -> None:
        self.slot = slot
        self._metric = metric
        self._suffix = suffix
        self._labels = labels
        self._rejections = rejections
        self._value = math.nan
        self._last: Sample | None = None

    def sample(self, value: float) -> Sample | None:
        if self._value != value:
            self._value = value
            self._last = self._judged(value)
        return self._last

    def _judged(self, value: float) -> Sample | None:
        if is_possible(self._metric, value):
            return Sample(metric=self._metric.name, suffix=self._suffix, labels=self._labels, value=value)
        _refuse(self._rejections, self._metric, self._labels, value)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Slots that are shown together or not at all: those of a metric, or of one tier of it.

    `early` groups are shown before the first step; `offered` ones only when some slot has a value.
    """

    series: tuple[_Series, ...]
    early: bool
    offered: bool

    def samples(self, bank: array[float], *, stepped: bool) -> list[Sample]:
        if not (stepped or self.early):
            return []
        if self.offered and not any(_is_given(bank[one.slot]) for one in self.series):
            return []
        samples = [one.sample(bank[one.slot]) for one in self.series]
        return [sample for sample in samples if sample is not None]


class RecordSeries:
    """Made for one job and rank; a job-wide metric belongs to rank 0."""

    def __init__(self, job: str, rank: int, rejections: Rejections) -> None:
        self._rejections = rejections
        rows = [
            (METRIC_BY_NAME[name], keys)
            for name, keys in _SLOTS_BY_METRIC.items()
            if rank == 0 or METRIC_BY_NAME[name].scope is not Scope.JOB
        ]
        self._groups = [
            _group(metric, some, (job, rank), rejections)
            for metric, keys in rows
            if metric.name not in STEPWISE
            for some in _shown_together(metric, keys)
        ]
        self._stepwise = [(metric, _labels(metric, job, rank)) for metric, _ in rows if metric.name in STEPWISE]

    def samples(self, snapshot: RankSnapshot, steps: tuple[StepSample, ...] | None) -> list[Sample]:
        """The newest values; with `steps`, those of stepwise metrics come as a point for each."""
        bank, stepped = snapshot.values.bank, bool(snapshot.steps)
        found: list[Sample] = []
        for group in self._groups:
            found += group.samples(bank, stepped=stepped)
        if stepped:
            for metric, labels in self._stepwise:
                found += self._of_steps(metric, labels, snapshot, steps)
        return found

    def _of_steps(
        self, metric: Metric, labels: Labels, snapshot: RankSnapshot, steps: tuple[StepSample, ...] | None
    ) -> list[Sample]:
        """Steps are judged once, when they are pushed; a scrape shows the newest one or nothing."""
        read = STEPWISE[metric.name]
        newest = read(snapshot.steps[-1])
        if steps is None:
            return [Sample(metric=metric.name, labels=labels, value=newest)] if is_possible(metric, newest) else []
        points = tuple([(step.end, read(step)) for step in steps])
        good = tuple([point for point in points if is_possible(metric, point[1])])
        if len(good) < len(points):
            for _, value in set(points) - set(good):
                _refuse(self._rejections, metric, labels, value)
        return [Sample(metric=metric.name, labels=labels, value=newest, points=good)]


def _refuse(rejections: Rejections, metric: Metric, labels: Labels, value: float) -> None:
    if not math.isnan(value):
        rejections.count(metric.name, "range", f"{value:g} of {dict(labels)}")


def _is_given(value: float) -> bool:
    return value != 0.0 and not math.isnan(value)


def _slots_by_metric() -> dict[str, tuple[SlotKey, ...]]:
    grouped: dict[str, list[SlotKey]] = {}
    for key in SLOTS:
        grouped.setdefault(key[0], []).append(key)
    return {name: tuple(keys) for name, keys in grouped.items()}


_SLOTS_BY_METRIC = _slots_by_metric()


def _shown_together(metric: Metric, keys: tuple[SlotKey, ...]) -> list[tuple[SlotKey, ...]]:
    if metric.name not in _BY_TIER:
        return [keys]
    return [tuple(key for key in keys if key[1][0] == tier) for tier in dict.fromkeys(key[1][0] for key in keys)]


def _group(metric: Metric, keys: tuple[SlotKey, ...], who: tuple[str, int], rejections: Rejections) -> _Group:
    by_tier = metric.name in _BY_TIER
    counts = metric.kind in {MetricKind.COUNTER, MetricKind.HISTOGRAM}
    return _Group(
        series=tuple(_series(metric, key, who, rejections) for key in keys),
        early=by_tier or counts or metric.name in _BEFORE_FIRST_STEP,
        offered=by_tier or metric.optional,
    )


def _labels(metric: Metric, job: str, rank: int) -> Labels:
    own = (("train_job", job),)
    return (*own, ("rank", str(rank))) if "rank" in metric.label_names else own


def _series(metric: Metric, key: SlotKey, who: tuple[str, int], rejections: Rejections) -> _Series:
    own = [label.name for label in metric.labels if label.name not in {"train_job", "rank"}]
    labels = (*_labels(metric, *who), *zip(own, key[1], strict=False))
    if metric.kind is not MetricKind.HISTOGRAM:
        return _Series(metric, "", labels, SLOTS[key], rejections)
    bound = key[1][-1]
    if bound in {"sum", "count"}:
        return _Series(metric, f"_{bound}", labels, SLOTS[key], rejections)
    return _Series(metric, "_bucket", (*labels, ("le", bound)), SLOTS[key], rejections)
