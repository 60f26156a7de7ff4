"""Workers that were killed, have exited or stand still, from the states that their agents report."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.events import Anomaly, Direction, Entity, EntityKind

METRIC = "everstep_worker_state"
VICTIM_REASONS = frozenset({"peer_lost"})
ORDERLY_REASONS = frozenset({"success", "stopped_by_agent"})
SECONDARY_SIGNALS = frozenset({-6, -13, -15})  # abort, broken pipe, termination: how a victim may end as well
REASON_WAIT_S = 0.25  # the agent reads the reason from the log tail a moment after the exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker as last reported; `alive_at` is when it was last seen alive, `since` when the state was first seen."""

    job: str
    rank: int
    node: str
    state: str
    since: float
    alive_at: float
    exit_code: int | None = None
    reason: str = ""


def judge_worker(worker: Worker, *, stopped_confirm_s: float, now: float) -> Anomaly | None:
    """The anomaly of one worker, or None while it runs, ended as it was told to, or stands still only briefly."""
    age_s = now - worker.since
    match worker.state:
        case "stopped" if age_s >= stopped_confirm_s:
            return _anomaly(worker)
        case "killed":
            return _anomaly(worker) if worker.reason not in ORDERLY_REASONS else None
        case "exited" if worker.reason not in ORDERLY_REASONS and (worker.reason or age_s >= REASON_WAIT_S):
            return _anomaly(worker)
    return None


def is_victim(anomaly: Anomaly) -> bool:
    """Whether a process ended only because a peer was lost."""
    return anomaly.detector == "process" and anomaly.evidence.get("reason") in VICTIM_REASONS


def is_decisive(anomaly: Anomaly) -> bool:
    """Whether this anomaly explains a stopped job by itself: a death by signal or a process that stands still."""
    if anomaly.detector != "process":
        return False
    killed = anomaly.evidence.get("state") == "killed" and anomaly.evidence.get("exit_code") not in SECONDARY_SIGNALS
    return killed or anomaly.evidence.get("state") == "stopped"


def _anomaly(worker: Worker) -> Anomaly:
    return Anomaly(
        entity=Entity(kind=EntityKind.RANK, name=f"{worker.job}/{worker.rank}"),
        metric=METRIC,
        onset_earliest=min(worker.alive_at, worker.since),
        onset_latest=worker.since,
        score=1.5 if worker.reason in VICTIM_REASONS else 2.0,
        direction=Direction.STOP if worker.state == "stopped" else Direction.CHANGE,
        detector="process",
        observed=float(worker.exit_code if worker.exit_code is not None else 0),
        expected=0.0,
        evidence={
            "state": worker.state,
            "exit_code": worker.exit_code,
            "reason": worker.reason,
            "node": worker.node,
        },
    )
