"""What an anomaly means: the closed set of facts that the rules speak about."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from everstep.core.events import Anomaly, Direction, EntityKind


class Fact(StrEnum):
    KILLED = "killed"
    ABORTED = "aborted"
    EXCEPTION = "exception"
    PEER_LOST = "peer_lost"
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    CHECKPOINT_EXIT = "checkpoint_exit"
    NONFINITE_EXIT = "nonfinite_exit"
    FENCED = "fenced"
    STOPPED = "stopped"
    NODE_REFUSED = "node_refused"
    NODE_SILENT = "node_silent"
    NODE_ANSWERS = "node_answers"
    STALLED = "stalled"
    NO_FIRST_STEP = "no_first_step"
    NONFINITE_INPUT = "nonfinite_input"
    NONFINITE_ALONE = "nonfinite_alone"
    NONFINITE_SHARED = "nonfinite_shared"
    SLOW = "slow"
    CHECKPOINT_DAMAGED = "checkpoint_damaged"
    GPU_LOST = "gpu_lost"
    TELEMETRY = "telemetry"
    SYMPTOM = "symptom"


_SIGABRT = -6  # a C++ exception that nobody catches: what a lost peer looks like in some builds of gloo
_REASONS = {
    "peer_lost": Fact.PEER_LOST,
    "out_of_memory": Fact.OUT_OF_MEMORY,
    "disk_full": Fact.DISK_FULL,
    "checkpoint": Fact.CHECKPOINT_EXIT,
    "nonfinite": Fact.NONFINITE_EXIT,
    "fenced": Fact.FENCED,
}
_NOT_WATCHED = frozenset(
    {EntityKind.JOB, EntityKind.RANK, EntityKind.BATCH, EntityKind.CHECKPOINT, EntityKind.GROUP, EntityKind.UNKNOWN}
)
"""Entities without an exporter of their own: their silence is not a fault of monitoring."""
_TELEMETRY_DETECTORS = frozenset({"telemetry", "frozen", "missing", "stale"})


def fact_of(anomaly: Anomaly, *, world_size: int) -> Fact:
    """The fact that an anomaly states; `world_size` 0 when unknown."""
    reader = _READERS.get(anomaly.detector)
    if reader is not None:
        return reader(anomaly.evidence, world_size)
    return Fact.TELEMETRY if anomaly.detector in _TELEMETRY_DETECTORS else _symptom(anomaly)


def _process(facts: dict[str, Any], world_size: int) -> Fact:
    del world_size
    if facts.get("state") == "stopped":
        return Fact.STOPPED
    known = _REASONS.get(str(facts.get("reason", "")))
    if known is not None:
        return known
    code = facts.get("exit_code")
    if code == _SIGABRT:
        return Fact.ABORTED
    signalled = facts.get("state") == "killed" or facts.get("reason") == "signal"
    return Fact.KILLED if signalled or (isinstance(code, int) and code < 0) else Fact.EXCEPTION


def _liveness(facts: dict[str, Any], world_size: int) -> Fact:
    del world_size
    probe = str(facts.get("probe", ""))
    if probe == "refused":
        return Fact.NODE_REFUSED
    return Fact.NODE_ANSWERS if probe == "ok" or probe.startswith("http") else Fact.NODE_SILENT


def _progress(facts: dict[str, Any], world_size: int) -> Fact:
    del world_size
    return Fact.NO_FIRST_STEP if facts.get("phase") == "startup" else Fact.STALLED


def _nonfinite(facts: dict[str, Any], world_size: int) -> Fact:
    if facts.get("input_nonfinite"):
        return Fact.NONFINITE_INPUT
    ranks = facts.get("ranks")
    alone = isinstance(ranks, list | tuple) and len(set(map(str, ranks))) == 1 and world_size != 1
    return Fact.NONFINITE_ALONE if alone else Fact.NONFINITE_SHARED


def _symptom(anomaly: Anomaly) -> Fact:
    training = anomaly.metric.startswith("everstep_train_") or anomaly.entity.kind in _NOT_WATCHED
    silent = anomaly.direction in {Direction.ABSENT, Direction.STOP}
    return Fact.TELEMETRY if silent and not training else Fact.SYMPTOM


def _slow(facts: dict[str, Any], world_size: int) -> Fact:
    del facts, world_size
    return Fact.SLOW


def _damaged(facts: dict[str, Any], world_size: int) -> Fact:
    del facts, world_size
    return Fact.CHECKPOINT_DAMAGED


def _gpus(facts: dict[str, Any], world_size: int) -> Fact:
    """An error code speaks of the fault that the policy gives it."""
    del world_size
    return Fact.SYMPTOM if "xid" in facts else Fact.GPU_LOST


def _alert(facts: dict[str, Any], world_size: int) -> Fact:
    """An alert speaks of its fault and proves no silence."""
    del facts, world_size
    return Fact.SYMPTOM


_READERS: dict[str, Callable[[dict[str, Any], int], Fact]] = {
    "process": _process,
    "liveness": _liveness,
    "progress": _progress,
    "nonfinite": _nonfinite,
    "peers": _slow,
    "checkpoint": _damaged,
    "gpus": _gpus,
    "alert": _alert,
}
