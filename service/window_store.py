"""Pushed samples by series: resolved by raw label bytes, gated, fenced, kept in bounded rings, handed to the job views.

A known series costs one dictionary look-up; labels are parsed once. Series of other exporters go through `foreign` and
arrive as ours. What is refused is counted by reason: `range` (physically impossible), `clock` (from the future),
`stale` (older than what is held or than the window), `duplicate`, `fenced` (of an older attempt), `limit` (too many
series), `unknown` (not in the metric table).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from everstep.core.remote_write import decode_labels, is_stale
from everstep.service.fast_decode import Layouts, Others, Samples
from everstep.service.foreign import Foreigners
from everstep.service.refusals import Refusals
from everstep.service.ring import TRIM_EVERY
from everstep.service.slots import (
    AGE,
    BOUNDING,
    FUTURE_S,
    RATE,
    UNLISTED,
    VALUE,
    BoundKey,
    Labels,
    RankKey,
    SeriesSlot,
    Speaker,
    bound_key,
    metric_of,
    refusal,
)
from everstep.service.views import AttemptView, JobViews

MAX_RING = 4096
MAX_NODES = 100_000

Batch = list[tuple[SeriesSlot, Samples]]
Handled = list[tuple[SeriesSlot, float, float]]
News = list[tuple[bytes, Labels | None, Samples]]


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
        self._layouts: Layouts[SeriesSlot] = Layouts()
        self._unlisted: set[bytes] = set()
        self._by_name: dict[str, list[SeriesSlot]] = {}
        self._num_series = 0
        self._speakers: dict[tuple[str, RankKey | None], Speaker] = {}
        self._bounds: dict[BoundKey, SeriesSlot] = {}
        self._bounded: dict[BoundKey, list[SeriesSlot]] = {}
        self._attempts: dict[tuple[str, str, int], int] = {}  # by node, job, rank: a rank may have moved
        self._refusals = Refusals()
        self._rejected = self._refusals.counts
        self._accepted = 0
        self._last_push: dict[str, float] = {}
        self._world_sizes: dict[str, int] = {}
        self._foreigners = Foreigners(self._register, self._rejected)
        self.views = JobViews(self.lock, lambda job: self._world_sizes.get(job, 0), current_attempt)

    @property
    def num_series(self) -> int:
        return self._num_series

    @property
    def num_accepted(self) -> int:
        return self._accepted

    def rejected(self) -> dict[tuple[str, str], int]:
        """Refused samples by (metric, reason)."""
        with self.lock:
            return dict(self._rejected)

    def last_push(self) -> dict[str, float]:
        """When each node's newest push of our own series arrived, seconds since the epoch by our clock."""
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
            slots, times, values, others = self._layouts.decode(raw, self._slots)
            batch, mapped = self._admit(self._named(others), arrived)
            before = self._accepted
            told = [(slot, value) for slot, value in zip(slots, values, strict=True) if slot.tells_attempt]
            told += [(slot, samples[-1][1]) for slot, samples in batch if slot.tells_attempt and samples]
            speakers = {slot.speaker for slot in slots} | {slot.speaker for slot, _ in batch}
            fenced, attempts = self._fence(speakers, told, arrived)
            handled = self._take_plain(slots, times, values, fenced, arrived)
            for slot, samples in (*batch, *mapped):
                if slot.key is not None and slot.key in fenced:
                    self._rejected[slot.name, "fenced"] += len(samples)
                    continue
                for at, value in samples:
                    self._take(slot, at, value, arrived, handled)
            self._hand_on(handled, attempts)
            return self._accepted - before

    def latest(self, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], tuple[float, float]]:
        """(time, value) of every living series of a metric that carries these labels."""
        with self.lock:
            return {
                tuple(sorted(slot.labels.items())): newest
                for slot in self._of(name, labels)
                if (newest := slot.ring.newest) is not None and not slot.ended
            }

    def living(self, name: str, nodes: Collection[str]) -> list[SeriesSlot]:
        """Series of a metric on these nodes that have not ended; to be read under the lock."""
        return [slot for slot in self._by_name.get(name, ()) if not slot.ended and slot.node in nodes]

    def samples(self, name: str, **labels: str) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Times and values of every series of a metric that carries these labels."""
        with self.lock:
            return [slot.ring.arrays() for slot in self._of(name, labels)]

    def _of(self, name: str, labels: Labels) -> Iterable[SeriesSlot]:
        return [
            slot
            for slot in self._by_name.get(name, ())
            if all(slot.labels.get(key) == value for key, value in labels.items())
        ]

    def _named(self, others: Others) -> News:
        """Labels of the blocks that are seen for the first time; all are read before any is registered."""
        return [(block, None if self._is_known(block) else decode_labels(block), samples) for block, samples in others]

    def _is_known(self, block: bytes) -> bool:
        return block in self._slots or block in self._unlisted or self._foreigners.knows(block)

    def _admit(self, news: News, arrived: float) -> tuple[Batch, Batch]:
        """Ours, then what others' series become; drops what is over the limit or not in the table."""
        batch: Batch = []
        mapped: Batch = []
        for block, labels, samples in news:
            slot = self._slots.get(block)
            if slot is None and labels is not None:
                slot = self._meet(block, labels, samples)
            if slot is not None:
                batch.append((slot, samples))
            elif self._foreigners.knows(block):
                mapped += self._foreigners.translate(block, samples, arrived=arrived)
            elif block in self._unlisted:
                self._rejected[UNLISTED, "unknown"] += len(samples)
        return batch, mapped

    def _meet(self, block: bytes, labels: Labels, samples: Samples) -> SeriesSlot | None:
        """Remember a block under what it is: ours (returned), another exporter's, or of no use."""
        name = labels["__name__"]
        if metric_of(name) is None:
            if not self._foreigners.meet(block, labels) and len(self._unlisted) < self._max_series:
                self._unlisted.add(block)
            return None
        slot = self._register(labels)
        if slot is None:
            self._rejected[name, "limit"] += len(samples)
            return None
        self._foreigners.native(slot)
        self._slots[block] = slot
        return slot

    def _register(self, labels: Labels) -> SeriesSlot | None:
        """A new slot where there is room; bounds and what they bound find each other here."""
        metric = metric_of(labels["__name__"])
        if metric is None or self._num_series >= self._max_series:
            return None
        slot = SeriesSlot(labels, metric)
        slot.speaker = self._speakers.setdefault((slot.node, slot.key), slot.speaker)
        self._num_series += 1
        self._by_name.setdefault(slot.name, []).append(slot)
        if slot.name in BOUNDING:
            key = bound_key(slot.name, labels)
            self._bounds[key] = slot
            for bounded in self._bounded.get(key, ()):
                bounded.upper = slot
        if metric.gate_by is not None:
            key = bound_key(metric.gate_by, labels)
            slot.upper = self._bounds.get(key)
            self._bounded.setdefault(key, []).append(slot)
        return slot

    def _fence(
        self, speakers: Iterable[Speaker], told: Iterable[tuple[SeriesSlot, float]], arrived: float
    ) -> tuple[set[RankKey], dict[RankKey, int]]:
        """Ranks of this push that belong to an attempt older than the current one, and each rank's attempt."""
        attempts: dict[RankKey, int] = {}
        for slot, value in told:
            if slot.key is not None and slot.metric.gate.admits(value):
                attempts[slot.key] = self._attempts[slot.node, *slot.key] = int(value)
        known: dict[RankKey, int] = {}
        fenced: set[RankKey] = set()
        for speaker in speakers:
            node, rank = speaker.node, speaker.key
            if node and (node in self._last_push or len(self._last_push) < MAX_NODES):
                self._last_push[node] = arrived
            if rank is None or rank in known:
                continue
            current = self._current_attempt(rank[0])
            known[rank] = attempts.get(rank, self._attempts.get((node, *rank), current))
            if known[rank] < current:
                fenced.add(rank)
        return fenced, known

    def _take_plain(
        self,
        slots: Sequence[SeriesSlot],
        times: Sequence[float],
        values: Sequence[float],
        fenced: set[RankKey],
        arrived: float,
    ) -> Handled:
        """The short way: what is in order and in the plain range is kept; all else goes through `_take`."""
        handled: Handled = []
        oldest, latest = arrived - self._window_s, arrived + FUTURE_S
        num_taken = 0
        for slot, at, value in zip(slots, times, values, strict=True):
            if fenced and slot.key in fenced:
                self._rejected[slot.name, "fenced"] += 1
                continue
            before = slot.newest_at
            judged_by = slot.judged_by
            if judged_by == VALUE:
                fits = slot.low <= value <= slot.high and (slot.upper is None or value <= slot.upper.newest)
            elif judged_by == RATE:
                fits = 0.0 <= value - slot.newest <= slot.high * (at - before)
            elif judged_by == AGE:
                fits = slot.low <= value - arrived <= slot.high
            else:
                fits = value == slot.newest
            if not (fits and before < at and oldest <= at <= latest):
                self._take(slot, at, value, arrived, handled)
                continue
            slot.newest_at = at
            slot.newest = value
            slot.ended = False
            ring = slot.ring
            ring.times.append(at)
            ring.values.append(value)
            if not len(ring.times) % TRIM_EVERY:
                ring.trim(oldest, MAX_RING)
            num_taken += 1
            if slot.handler is not None:
                handled.append((slot, at, value))
        self._accepted += num_taken
        return handled

    def _take(self, slot: SeriesSlot, at: float, value: float, arrived: float, handled: Handled) -> None:
        if is_stale(value):
            slot.ended = True
            return
        reason = refusal(slot, at, value, arrived=arrived, window_s=self._window_s)
        if reason:
            self._refusals.add(slot.name, reason, node=slot.node, at=at, value=value, arrived=arrived)
            return
        slot.newest_at = at
        slot.newest = value
        slot.ended = False
        slot.ring.append(at, value, window_s=self._window_s, most=MAX_RING)
        self._accepted += 1
        if slot.handler is not None:
            handled.append((slot, at, value))

    def _hand_on(self, handled: Handled, attempts: dict[RankKey, int]) -> None:
        """Tell the job views, steps first: they date the other samples of the push."""
        steps = [entry for entry in handled if not entry[0].order]
        views: dict[RankKey, AttemptView] = {}
        for slot, at, value in steps + [entry for entry in handled if entry[0].order]:
            key = slot.key
            if key is None or slot.handler is None or attempts[key] <= 0:
                continue
            view = views.get(key)
            if view is None:
                view = views[key] = self.views.job(key[0]).attempt(attempts[key])
            if slot.node:
                view.rank(key[1]).node = slot.node
            slot.handler(view, key[1], slot.label, at, value)
