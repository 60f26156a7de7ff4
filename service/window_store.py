"""Pushed samples by series: resolved by raw label bytes, gated, fenced, kept in bounded rings, handed to the job views.

A known series costs one dictionary look-up; labels are parsed once. What is refused is counted by reason: `range`
(physically impossible), `clock` (from the future), `stale` (older than what is held or than the window), `duplicate`,
`fenced` (of an older attempt), `limit` (too many series), `unknown` (not in the metric table).
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from everstep.core.metrics import METRIC_BY_NAME, METRICS, Metric, MetricKind, Scope
from everstep.core.remote_write import decode, decode_labels, is_stale
from everstep.service.ring import Ring
from everstep.service.views import MAX_RANKS, STEP_HANDLERS, VALUE_HANDLERS, Handler, JobViews

ATTEMPT = "everstep_train_attempt"
FUTURE_S = 5.0
MAX_RING = 4096
MAX_NODES = 100_000
UNLISTED = "unlisted"
BOUNDING = frozenset(metric.gate_by for metric in METRICS if metric.gate_by is not None)
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
STATE_LABELS = ("state", "reason", "tier", "phase")

HANDLERS: dict[str, Handler] = {**STEP_HANDLERS, **VALUE_HANDLERS}

RankKey = tuple[str, int]
BoundKey = tuple[str, tuple[str, ...]]
Batch = list[tuple["SeriesSlot", list[tuple[float, float]]]]


class SeriesSlot:
    """One series; `metric` is None when the table does not know it, `key` the rank that it speaks of, if any."""

    __slots__ = ("ended", "handler", "key", "label", "labels", "metric", "name", "node", "order", "ring", "upper")

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.name = labels["__name__"]
        self.metric = _metric(self.name)
        self.node = labels.get("node", "")
        self.key = _rank_key(labels, self.metric)
        self.label = next((labels[name] for name in STATE_LABELS if name in labels), "")
        self.order = 0 if self.name in STEP_HANDLERS else 1
        self.handler: Handler | None = HANDLERS.get(self.name)
        self.ring = Ring()
        self.ended = False
        self.upper: SeriesSlot | None = None  # the series that bounds this one, by `Metric.gate_by`


class WindowStore:
    """Written by the ingest route, read by the monitor and the API; every public method takes the lock itself.

    `current_attempt` gives the number of the controller's current attempt of a job, 0 when there is none.
    """

    def __init__(self, *, window_s: float, max_series: int, current_attempt: Callable[[str], int]) -> None:
        self.lock = threading.RLock()
        self._window_s = window_s
        self._max_series = max_series
        self._current_attempt = current_attempt
        self._slots: dict[bytes, SeriesSlot] = {}
        self._by_name: dict[str, list[SeriesSlot]] = {}
        self._bounds: dict[BoundKey, SeriesSlot] = {}
        self._attempts: dict[tuple[str, str, int], int] = {}  # by node, job, rank: a rank may have moved
        self._rejected: Counter[tuple[str, str]] = Counter()
        self._accepted = 0
        self._last_push: dict[str, float] = {}
        self._world_sizes: dict[str, int] = {}
        self.views = JobViews(self.lock, lambda job: self._world_sizes.get(job, 0), current_attempt)

    @property
    def num_series(self) -> int:
        return len(self._slots)

    @property
    def num_accepted(self) -> int:
        return self._accepted

    def rejected(self) -> dict[tuple[str, str], int]:
        """Refused samples by (metric, reason)."""
        with self.lock:
            return dict(self._rejected)

    def last_push(self) -> dict[str, float]:
        """When each node's newest push arrived, seconds since the epoch by our clock."""
        with self.lock:
            return dict(self._last_push)

    def set_world_size(self, job: str, world_size: int) -> None:
        with self.lock:
            self._world_sizes[job] = world_size

    def apply(self, raw: bytes, *, arrived: float) -> int:
        """Take a decompressed WriteRequest; returns the number of samples taken.

        Raises `WireError` before anything is applied when any part of the body is malformed.
        """
        with self.lock:
            parsed: list[tuple[bytes, SeriesSlot | None, list[tuple[float, float]]]] = []
            for block, samples in decode(raw):
                slot = self._slots.get(block)
                parsed.append((block, slot if slot is not None else SeriesSlot(decode_labels(block)), samples))
            batch = self._admit(parsed)
            before = self._accepted
            fenced, attempts = self._fence(batch, arrived)
            batch.sort(key=lambda entry: entry[0].order)  # steps first: they date the other samples of the push
            for slot, samples in batch:
                if slot.key is not None and slot.key in fenced:
                    self._rejected[slot.name, "fenced"] += len(samples)
                    continue
                self._take(slot, samples, attempts, arrived)
            return self._accepted - before

    def latest(self, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], tuple[float, float]]:
        """(time, value) of every living series of a metric that carries these labels."""
        with self.lock:
            return {
                tuple(sorted(slot.labels.items())): newest
                for slot in self._of(name, labels)
                if (newest := slot.ring.newest) is not None and not slot.ended
            }

    def samples(self, name: str, **labels: str) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Times and values of every series of a metric that carries these labels."""
        with self.lock:
            return [slot.ring.arrays() for slot in self._of(name, labels)]

    def _of(self, name: str, labels: dict[str, str]) -> Iterable[SeriesSlot]:
        return [
            slot
            for slot in self._by_name.get(name, ())
            if all(slot.labels.get(key) == value for key, value in labels.items())
        ]

    def _admit(self, parsed: list[tuple[bytes, SeriesSlot | None, list[tuple[float, float]]]]) -> Batch:
        """Register new series while there is room; drop what is over the limit or not in the table."""
        batch: Batch = []
        for block, slot, samples in parsed:
            if slot is None:
                continue
            if block not in self._slots:
                if len(self._slots) >= self._max_series:
                    self._rejected[_listed(slot), "limit"] += len(samples)
                    continue
                self._slots[block] = slot
                self._by_name.setdefault(slot.name, []).append(slot)
                if slot.name in BOUNDING:
                    self._bounds[_bound_key(slot.name, slot.labels)] = slot
            if slot.metric is None:
                self._rejected[UNLISTED, "unknown"] += len(samples)
                continue
            batch.append((slot, samples))
        return batch

    def _fence(self, batch: Batch, arrived: float) -> tuple[set[RankKey], dict[RankKey, int]]:
        """Ranks of this push that belong to an attempt older than the current one, and each rank's attempt."""
        told: dict[RankKey, int] = {}
        for slot, samples in batch:
            if slot.node and (slot.node in self._last_push or len(self._last_push) < MAX_NODES):
                self._last_push[slot.node] = arrived
            if slot.key is None or slot.name != ATTEMPT or not samples or not samples[-1][1] >= 0:
                continue
            told[slot.key] = number = int(samples[-1][1])
            self._attempts[slot.node, *slot.key] = number
        known: dict[RankKey, int] = {}
        fenced: set[RankKey] = set()
        for slot, _ in batch:
            rank = slot.key
            if rank is None or rank in known:
                continue
            current = self._current_attempt(rank[0])
            known[rank] = told.get(rank, self._attempts.get((slot.node, *rank), current))
            if known[rank] < current:
                fenced.add(rank)
        return fenced, known

    def _take(
        self, slot: SeriesSlot, samples: list[tuple[float, float]], attempts: dict[RankKey, int], arrived: float
    ) -> None:
        for at, value in samples:
            if is_stale(value):
                slot.ended = True
                continue
            if slot.upper is None and slot.metric is not None and slot.metric.gate_by is not None:
                slot.upper = self._bounds.get(_bound_key(slot.metric.gate_by, slot.labels))
            reason = _refusal(slot, at, value, arrived=arrived, window_s=self._window_s)
            if reason:
                self._rejected[slot.name, reason] += 1
                continue
            slot.ring.append(at, value, window_s=self._window_s, most=MAX_RING)
            slot.ended = False
            self._accepted += 1
            if slot.handler is not None and slot.key is not None and attempts[slot.key] > 0:
                job, rank = slot.key
                view = self.views.job(job).attempt(attempts[slot.key])
                if slot.node:
                    view.rank(rank).node = slot.node
                slot.handler(view, rank, slot.label, at, value)


def _metric(name: str) -> Metric | None:
    metric = METRIC_BY_NAME.get(name)
    for suffix in HISTOGRAM_SUFFIXES:
        if metric is None and name.endswith(suffix):
            base = METRIC_BY_NAME.get(name.removesuffix(suffix))
            metric = base if base is not None and base.kind is MetricKind.HISTOGRAM else None
    return metric


def _listed(slot: SeriesSlot) -> str:
    """The metric's name where the table knows it; one word for all others, so that nobody can grow our labels."""
    return slot.name if slot.metric is not None else UNLISTED


def _rank_key(labels: dict[str, str], metric: Metric | None) -> RankKey | None:
    """The rank whose attempt decides about the series; job-wide numbers come from rank 0."""
    job = labels.get("train_job")
    if job is None or metric is None:
        return None
    if metric.scope is Scope.JOB:
        return job, 0
    rank = labels.get("rank", "")
    return (job, int(rank)) if rank.isascii() and rank.isdigit() and int(rank[:9]) < MAX_RANKS else None


def _refusal(slot: SeriesSlot, at: float, value: float, *, arrived: float, window_s: float) -> str:
    """Why a sample is not taken; empty when it is."""
    newest = slot.ring.newest
    if at > arrived + FUTURE_S:
        return "clock"
    if at < arrived - window_s or (newest is not None and at < newest[0]):
        return "stale"
    if newest is not None and at == newest[0]:
        return "duplicate"
    return "" if _possible(slot, at, value, newest, arrived) else "range"


def _possible(slot: SeriesSlot, at: float, value: float, newest: tuple[float, float] | None, arrived: float) -> bool:
    metric = slot.metric
    if metric is None or metric.kind is MetricKind.HISTOGRAM:
        return math.isfinite(value)
    judged = value
    if metric.gate.per_second:
        if not math.isfinite(value) or value < 0:
            return False
        if newest is None or value < newest[1]:  # first sight or a reset: there is no rate yet
            return True
        judged = (value - newest[1]) / max(at - newest[0], 0.001)
    bound = slot.upper.ring.newest if slot.upper is not None else None
    if bound is not None and bound[1] > 0 and judged > bound[1] * metric.gate_factor:
        return False
    return metric.gate.admits(judged, now=arrived)


def _bound_key(name: str, labels: dict[str, str]) -> BoundKey:
    """The bounding series of the same entity: same node, same values of the labels that the bound itself has."""
    own = METRIC_BY_NAME[name].label_names if name in METRIC_BY_NAME else ()
    return name, (labels.get("node", ""), *(labels.get(label, "") for label in own))
