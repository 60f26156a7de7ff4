"""Rank-local compute of one job, step by step: peers are the gate, baseline and forest are votes kept as evidence."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from everstep.core.events import Anomaly, Direction, Entity, EntityKind
from everstep.core.settings import DetectorSettings
from everstep.detector.baseline import RobustBaseline
from everstep.detector.forest import ForestVote
from everstep.detector.peers import PeerDetector
from everstep.detector.window import Window

METRIC = "everstep_train_step_compute_seconds"
SETTLING_STEPS = 2  # the first steps of an attempt allocate and warm caches; they neither teach nor accuse


class SlowRanks:
    """Feed it each finished step of an attempt in order; it keeps what it has learned over attempts."""

    def __init__(self, job: str, settings: DetectorSettings) -> None:
        self._job = job
        self._settings = settings
        self._peers = PeerDetector(
            ratio=settings.peer_ratio,
            window=settings.peer_window,
            needed=settings.peer_needed,
            warmup=settings.warmup_steps,
        )
        self._baseline = RobustBaseline(warmup=settings.warmup_steps)
        self.forest = ForestVote(window=settings.peer_window)
        self._entities: tuple[Entity, ...] = ()
        self._nodes: Mapping[int, str] = {}
        self._columns: deque[tuple[int, float, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]] = deque(
            maxlen=2 * settings.peer_window
        )
        self._seen = 0
        self._score = math.nan

    @property
    def score(self) -> float:
        """Highest peer score of the newest step judged; NaN before one is."""
        return self._score

    @property
    def steps(self) -> int:
        """Steps learned for the least known rank."""
        return self._peers.learned(self._entities)

    def begin(self, nodes: Mapping[int, str]) -> None:
        """A new attempt with these ranks and their nodes: a fresh window, the same baselines."""
        for rank in nodes.keys() & self._nodes.keys():
            if nodes[rank] != self._nodes[rank]:
                self._baseline.reanchor(self._entity(rank))
        self._nodes = dict(nodes)
        self._entities = tuple(self._entity(rank) for rank in sorted(nodes))
        self._columns.clear()
        self._seen = 0
        self._score = math.nan

    def step(self, number: int, at: float, compute_s: Sequence[float]) -> list[Anomaly]:
        """Judge one finished step; `compute_s` is in rank order, NaN where a rank's sample is missing."""
        self._seen += 1
        if self._seen <= SETTLING_STEPS or len(compute_s) != len(self._entities):
            return []
        self._columns.append((number, at, np.asarray(compute_s, dtype=np.float64)))
        window = self._window()
        scores = self._peers.score(window)
        flagged = scores.flagged()
        known = scores.values[np.isfinite(scores.values)]
        self._score = float(known.max()) if len(known) else math.nan
        found = [self._anomaly(index, float(scores.values[index]), window) for index in flagged]
        if not found:
            newest = window.newest(1)
            self._peers.learn(newest)
            self._baseline.learn(newest)
            if len(self._columns) >= self._settings.peer_window:
                self.forest.learn(self._peers.relative(window.newest(self._settings.peer_window)))
        return found

    def bands(self) -> dict[str, tuple[float, float]]:
        """Learned compute seconds by node: from the lowest to the highest edge of the ranks that run there."""
        found: dict[str, tuple[float, float]] = {}
        for rank, node in self._nodes.items():
            band = self._baseline.band(self._entity(rank))
            if band is not None:
                lower, upper = found.get(node, band)
                found[node] = min(lower, band[0]), max(upper, band[1])
        return found

    def state(self) -> dict[str, dict[str, list[float]]]:
        """What was learned, as plain values."""
        return {"peers": self._peers.state(), "baseline": self._baseline.state()}

    def restore(self, state: Mapping[str, Mapping[str, Sequence[float]]], world_size: int) -> None:
        entities = [self._entity(rank) for rank in range(world_size)]
        self._peers.restore(state.get("peers", {}), entities)
        self._baseline.restore(state.get("baseline", {}), entities)

    def _entity(self, rank: int) -> Entity:
        return Entity(kind=EntityKind.RANK, name=f"{self._job}/{rank}")

    def _window(self) -> Window:
        return Window(
            metric=METRIC,
            entities=self._entities,
            times=np.array([at for _, at, _ in self._columns]),
            values=np.column_stack([values for _, _, values in self._columns]),
        )

    def _anomaly(self, index: int, score: float, window: Window) -> Anomaly:
        recent = window.newest(self._settings.peer_window)
        relative = self._peers.relative(recent)
        row = relative.values[index]
        above = np.flatnonzero(row > math.log(self._settings.peer_ratio))
        first = int(above[0]) if len(above) else len(row) - 1
        ratio = float(np.exp(np.median(row[np.isfinite(row)])))
        votes = {
            "baseline": bool(self._baseline.score(recent).values[index] >= 1.0),
            "forest": bool(self.forest.score(relative).values[index] >= 1.0),
        }
        observed = recent.values[index][np.isfinite(recent.values[index])]
        return Anomaly(
            entity=self._entities[index],
            metric=METRIC,
            onset_earliest=float(recent.times[max(0, first - 1)]),
            onset_latest=float(recent.times[first]),
            score=score,
            direction=Direction.HIGH,
            detector="peers",
            observed=float(np.median(observed)),
            expected=float(np.median(observed)) / ratio,
            evidence={
                "ratio": round(ratio, 3),
                "votes": votes,
                "steps": len(row) - first,
                "node": self._nodes.get(sorted(self._nodes)[index], ""),
            },
        )
