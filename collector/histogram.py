"""A histogram of the metric table that a probe fills, and its samples."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from everstep.collector.samples import Labels, Sample
from everstep.core.metrics import METRIC_BY_NAME


class Histogram:
    """One set of labels. Not for two threads at once; starts at zero, so that the first observation is an increase."""

    def __init__(self, metric: str, labels: Labels) -> None:
        row = METRIC_BY_NAME[metric]
        self._metric = metric
        self._labels = labels
        self._gate = row.gate
        self._bounds = row.buckets
        bounds = (*map(repr, row.buckets), "+Inf")
        self._buckets = tuple((*labels, ("le", bound)) for bound in bounds)
        self._counts = [0] * (len(row.buckets) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """An observation outside the table's gate is none."""
        if self._gate.admits(value):
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

    def lose(self, after_s: float) -> None:
        """A probe without an answer: it counts in +Inf, and with the time waited in the sum."""
        self._counts[-1] += 1
        self._sum += after_s

    def samples(self) -> Iterator[Sample]:
        total = 0
        for labels, total in zip(self._buckets, accumulate(self._counts), strict=True):
            yield Sample(metric=self._metric, suffix="_bucket", labels=labels, value=float(total))
        yield Sample(metric=self._metric, suffix="_sum", labels=self._labels, value=self._sum)
        yield Sample(metric=self._metric, suffix="_count", labels=self._labels, value=float(total))
