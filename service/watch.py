"""Runs every detector over one job's current attempt and says what is new; keeps what it learned over attempts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from everstep.core.engine import Attempt, ClusterSnapshot, WorkerState, WorkerStatus
from everstep.core.events import Anomaly
from everstep.core.settings import DetectorSettings
from everstep.detector.checkpoints import judge_checkpoint_age
from everstep.detector.fusion import METRIC as COMPUTE
from everstep.detector.fusion import SlowRanks
from everstep.detector.gpus import GpuReadings, GpuWatch
from everstep.detector.liveness import silent_nodes, unreachable
from everstep.detector.nonfinite import NonfiniteCount, judge_nonfinite
from everstep.detector.process import ORDERLY_REASONS, judge_worker
from everstep.detector.progress import STEADY, Progress, StepDeadline, judge_progress
from everstep.service.views import KEPT_STEPS, AttemptView, RankView

TIMEOUT_SILENCE_S = 1.0  # a probe that times out counts only for a node that has also stopped pushing
STEP = "everstep_train_step_duration_seconds"
OWN_STATES = frozenset({"checkpoint", "evaluation"})  # states of the training loop with deadlines of their own
ENDED = {WorkerState.EXITED: "exited", WorkerState.KILLED: "killed", WorkerState.STOPPED: "stopped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """`fresh` anomalies were not reported before in this attempt; `stalled` stands as long as the stall does.

    `silent` nodes hold ranks and have not pushed for too long. `ending` says that the job ends as it should.
    """

    fresh: tuple[Anomaly, ...] = ()
    stalled: Anomaly | None = None
    silent: tuple[str, ...] = ()
    ending: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """`edges` maps (metric, node; empty for the whole job) to what is normal, `scores` metrics to 0 to 1."""

    edges: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Probe:
    how: str
    at: float


@dataclass(slots=True)
class _Watched:
    """What is forgotten when a new attempt begins."""

    attempt: Attempt
    since: float
    next_step: int = 0
    seen: set[tuple[str, ...]] = field(default_factory=set)
    probes: dict[str, _Probe] = field(default_factory=dict)
    slow: bool = False
    gpus: GpuWatch = field(default_factory=GpuWatch)


class JobWatch:
    """Owned by the monitor thread, which holds the store's lock while it calls `observe` or `absorb`."""

    def __init__(self, job: str, settings: DetectorSettings) -> None:
        self._job = job
        self._settings = settings
        self.slow_ranks = SlowRanks(job, settings)
        self.deadline = StepDeadline(
            factor=settings.hang_factor,
            floor_s=settings.hang_floor_s,
            startup_s=settings.startup_deadline_s,
            warmup=settings.warmup_steps,
        )
        self._watched: _Watched | None = None

    @property
    def attempt(self) -> int:
        """Number of the attempt that is watched, 0 before any."""
        return self._watched.attempt.number if self._watched is not None else 0

    @property
    def since(self) -> float:
        return self._watched.since if self._watched is not None else math.inf

    @property
    def slow(self) -> bool:
        """Whether a rank of this attempt was found slow."""
        return self._watched is not None and self._watched.slow

    @property
    def learned(self) -> bool:
        """Whether step times and peer ratios are known well enough to judge by."""
        return self.deadline.learned and self.slow_ranks.steps >= self._settings.warmup_steps

    def begin(self, attempt: Attempt, now: float) -> None:
        """Watch a new attempt: fresh windows, the same baselines."""
        self._watched = _Watched(attempt=attempt, since=now)
        self.slow_ranks.begin({placement.rank: placement.node for placement in attempt.placements})

    def rearm(self, now: float) -> None:
        """The watcher itself was away: nobody is late for what it could not hear."""
        if self._watched is not None:
            self._watched.since = now

    def observe(
        self, view: AttemptView, last_push: Mapping[str, float], gpus: GpuReadings | None, now: float
    ) -> Findings:
        """Judge the attempt as it stands. `last_push` maps nodes to the arrival of their newest push.

        `gpus` are those of the attempt's nodes, None when nobody has looked since the last call.
        """
        watched = self._watched
        if watched is None:
            return Findings()
        workers = view.workers()
        ending = any(worker.state == "exited" and worker.reason in ORDERLY_REASONS for worker in workers)
        ended = (
            ending
            and len(workers) >= watched.attempt.world_size
            and all(worker.state in {"exited", "killed"} for worker in workers)
        )
        found = [
            anomaly
            for worker in workers
            if (anomaly := judge_worker(worker, stopped_confirm_s=self._settings.stopped_confirm_s, now=now))
        ]
        hurt = bool(found)
        found += judge_nonfinite(self._job, [_count(rank) for rank in view.ranks.values()])
        found += self._slow(view)
        found += self._old_checkpoints(view)
        stalled = None if ending else self._stalled(view, now)
        if gpus is not None:
            found += watched.gpus.judge(gpus, stopped=not ending and (hurt or stalled is not None))
        silent = silent_nodes(
            last_push,
            watched.attempt.nodes,
            since=watched.since,
            deadline_s=self._settings.node_deadline_s,
            now=now,
        )
        if not ending and (hurt or stalled is not None):
            found += self._unreachable(last_push, now)
        return Findings(
            fresh=self._unseen(found), stalled=stalled, silent=() if ending else silent, ending=ending, ended=ended
        )

    def absorb(self, snapshot: ClusterSnapshot, view: AttemptView, now: float) -> None:
        """Take what a probe of the agents told: who answers, and ends of workers that no push has told yet."""
        watched = self._watched
        if watched is None:
            return
        for node in watched.attempt.nodes:
            status = snapshot.nodes.get(node)
            if status is None:
                continue
            if status.reachable:
                watched.probes.pop(node, None)
                for worker in status.workers:
                    if worker.job == self._job and worker.attempt == watched.attempt.number:
                        _tell(view, worker, now)
            else:
                watched.probes[node] = _Probe(how=_how(status.detail), at=snapshot.at)

    def bands(self) -> Bands:
        """What is normal for the job and how far the newest samples are from it, for `/metrics`."""
        edges = {(COMPUTE, node): band for node, band in self.slow_ranks.bands().items()}
        step = self.deadline.band()
        if step is not None:
            edges[STEP, ""] = step
        scores = {COMPUTE: self.slow_ranks.score}
        return Bands(
            edges=edges, scores={metric: min(1.0, score) for metric, score in scores.items() if math.isfinite(score)}
        )

    def state(self) -> dict[str, Any]:
        """What was learned, as plain values."""
        return {"durations": self.deadline.durations(), **self.slow_ranks.state()}

    def restore(self, state: Mapping[str, Any], world_size: int) -> None:
        for duration_s in state.get("durations", ()):
            self.deadline.learn(float(duration_s))
        self.slow_ranks.restore(state, world_size)

    def _slow(self, view: AttemptView) -> list[Anomaly]:
        watched = self._watched
        if watched is None:
            return []
        for train_state, duration_s in view.fresh:
            self.deadline.learn(duration_s, train_state if train_state in OWN_STATES else STEADY)
        view.fresh.clear()
        world_size = watched.attempt.world_size
        finished, _ = view.finished(world_size)
        found: list[Anomaly] = []
        first = max(watched.next_step, finished - KEPT_STEPS)
        for step in range(first, finished + 1):
            if step not in view.compute:
                continue
            row = view.compute[step]
            at = max((rank.ends.get(step, 0.0) for rank in view.ranks.values()), default=0.0)
            found += self.slow_ranks.step(step, at, [row.get(rank, math.nan) for rank in range(world_size)])
            watched.next_step = step + 1
        watched.slow = watched.slow or bool(found)
        return found

    def _stalled(self, view: AttemptView, now: float) -> Anomaly | None:
        watched = self._watched
        if watched is None:
            return None
        stepped = view.frontier > 0
        states = {rank.train_state for rank in view.ranks.values()}
        progress = Progress(
            job=self._job,
            last_at=max(view.frontier_at, watched.since) if stepped else watched.since,
            last_steps={rank.rank: rank.last_step for rank in view.ranks.values()},
            state=next(iter(sorted(states & OWN_STATES)), STEADY),
        )
        return judge_progress(progress, self.deadline, stepped=stepped, now=now)

    def _unreachable(self, last_push: Mapping[str, float], now: float) -> list[Anomaly]:
        """Nodes whose probe failed after their last push; a time-out needs silence beside it."""
        watched = self._watched
        if watched is None:
            return []
        found = []
        for node, probe in watched.probes.items():
            pushed = last_push.get(node, watched.since)
            if pushed > probe.at or (probe.how != "refused" and now - pushed < TIMEOUT_SILENCE_S):
                continue
            found.append(
                unreachable(node, probe=probe.how, last_push=pushed, deadline_s=self._settings.node_deadline_s, now=now)
            )
        return found

    def _old_checkpoints(self, view: AttemptView) -> list[Anomaly]:
        first = view.ranks.get(0)
        if first is None:
            return []
        judged = (
            judge_checkpoint_age(self._job, tier, commits, step=view.frontier)
            for tier, commits in first.commits.items()
        )
        return [anomaly for anomaly in judged if anomaly is not None]

    def _unseen(self, found: list[Anomaly]) -> tuple[Anomaly, ...]:
        watched = self._watched
        fresh: dict[tuple[str, ...], Anomaly] = {}
        for anomaly in found:
            key = (anomaly.detector, str(anomaly.entity), anomaly.metric, str(anomaly.evidence.get("xid", "")))
            if watched is not None and key not in watched.seen:
                fresh.setdefault(key, anomaly)
        if watched is not None:
            watched.seen.update(fresh)
        return tuple(fresh.values())


def _count(rank: RankView) -> NonfiniteCount:
    return NonfiniteCount(
        rank=rank.rank,
        steps=rank.nonfinite_steps,
        batch=rank.nonfinite_batch,
        input_nonfinite=rank.nonfinite_input,
        step=rank.last_step,
        at=rank.nonfinite_at,
    )


def _tell(view: AttemptView, worker: WorkerStatus, now: float) -> None:
    """Enter a worker's state as if its agent had pushed it, where no push has told as much."""
    rank = view.rank(worker.rank)
    rank.node = rank.node or worker.node
    state = ENDED.get(worker.state, "running")
    if state == "running" and rank.process:
        return
    view.on_worker_state(worker.rank, state, now, 1.0)
    if worker.exit_code is not None:
        rank.exit_code = worker.exit_code
    rank.reason = rank.reason or worker.reason


def _how(detail: str) -> str:
    """The way a probe failed, as one word of the contract: refused, timeout or http-<status>."""
    word = detail.strip().partition(" ")[0].strip(":,;").lower()
    return word if word in {"refused", "timeout"} or word.startswith("http-") else "timeout"
