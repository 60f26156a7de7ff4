"""What a snapshot and a missed deadline say as anomalies: a failed recovery is diagnosed like any failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from everstep.core.engine import Attempt, ClusterSnapshot, WorkerState, WorkerStatus
from everstep.core.events import Anomaly, Direction, Entity, EntityKind
from everstep.recovery.resume import Skipped

ENDED = frozenset({WorkerState.EXITED, WorkerState.KILLED})
ORDERLY = frozenset({"success", "stopped_by_agent"})
STOPPERS = frozenset({"process", "liveness", "progress", "nonfinite"})
"""Detectors whose anomalies mean that an attempt does not go on; a slow rank, for one, can wait."""


def workers_of(snapshot: ClusterSnapshot, attempt: Attempt) -> Iterator[WorkerStatus]:
    for node in snapshot.nodes.values():
        for worker in node.workers:
            if worker.job == attempt.job and worker.attempt == attempt.number:
                yield worker


def completed(snapshot: ClusterSnapshot, attempt: Attempt) -> bool:
    """Whether every rank has ended as it should."""
    workers = list(workers_of(snapshot, attempt))
    good = {one.rank for one in workers if one.state is WorkerState.EXITED and one.reason == "success"}
    return len(good) == attempt.world_size


def troubles(snapshot: ClusterSnapshot, attempt: Attempt) -> tuple[Anomaly, ...]:
    """Nodes of the attempt that do not answer and workers that ended badly."""
    found = [
        _anomaly(
            Entity(kind=EntityKind.NODE, name=name),
            "everstep_agent_up",
            "liveness",
            snapshot.at,
            {"probe": snapshot.nodes[name].detail or "timeout", "silent_s": 0.0},
        )
        for name in attempt.nodes
        if name in snapshot.nodes and not snapshot.nodes[name].reachable
    ]
    found += [
        _anomaly(
            Entity(kind=EntityKind.RANK, name=f"{attempt.job}/{worker.rank}"),
            "everstep_worker_state",
            "process",
            snapshot.at,
            {
                "state": worker.state.value,
                "exit_code": worker.exit_code,
                "reason": worker.reason,
                "node": worker.node,
            },
        )
        for worker in workers_of(snapshot, attempt)
        if worker.state in ENDED and worker.reason not in ORDERLY
    ]
    return tuple(found)


def no_first_step(attempt: Attempt, *, since: float, now: float) -> Anomaly:
    return Anomaly(
        entity=Entity(kind=EntityKind.JOB, name=attempt.job),
        metric="everstep_train_steps_total",
        onset_earliest=since,
        onset_latest=now,
        score=1.0,
        direction=Direction.STOP,
        detector="progress",
        observed=now - since,
        expected=now - since,
        evidence={"deadline_s": now - since, "phase": "startup", "last_steps": {}},
    )


def damaged_checkpoints(job: str, damaged: Iterable[Skipped], *, now: float) -> tuple[Anomaly, ...]:
    return tuple(
        _anomaly(
            Entity(kind=EntityKind.CHECKPOINT, name=f"{job}/step-{one.point.step}"),
            "everstep_checkpoint_last_step",
            "checkpoint",
            now,
            {"problem": one.why, "tier": one.point.tier, "attempt": one.point.attempt},
        )
        for one in damaged
    )


def relevant(anomalies: Iterable[Anomaly], attempt: Attempt) -> tuple[Anomaly, ...]:
    """Anomalies that stop this attempt: those of other nodes and of slowness are left out."""
    return tuple(
        one
        for one in anomalies
        if one.detector in STOPPERS and (one.entity.kind is not EntityKind.NODE or one.entity.name in attempt.nodes)
    )


def merged(first: Iterable[Anomaly], second: Iterable[Anomaly]) -> tuple[Anomaly, ...]:
    """Both, each (detector, entity) once, the first word counting."""
    kept: dict[tuple[str, Entity], Anomaly] = {}
    for one in (*first, *second):
        kept.setdefault((one.detector, one.entity), one)
    return tuple(kept.values())


def _anomaly(entity: Entity, metric: str, detector: str, at: float, evidence: dict[str, object]) -> Anomaly:
    return Anomaly(
        entity=entity,
        metric=metric,
        onset_earliest=at,
        onset_latest=at,
        score=2.0,
        direction=Direction.CHANGE,
        detector=detector,
        observed=1.0,
        expected=0.0,
        evidence=evidence,
    )
