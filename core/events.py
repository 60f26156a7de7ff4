"""Values that flow from detector to root cause to controller: entities, anomalies, causes, incidents."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from everstep.core.actions import Plan, PlannedAction


class EntityKind(StrEnum):
    RACK = "rack"
    NODE = "node"
    GPU = "gpu"
    NVLINK_DOMAIN = "nvlink_domain"
    NIC = "nic"
    RAIL = "rail"
    PLANE = "plane"
    LEAF = "leaf"
    SPINE = "spine"
    LINK = "link"
    MOUNT = "mount"
    STORAGE_SERVER = "storage_server"
    CACHE_TIER = "cache_tier"
    OBJECT_STORE = "object_store"
    JOB = "job"
    RANK = "rank"
    PROCESS = "process"
    BATCH = "batch"
    CHECKPOINT = "checkpoint"
    GROUP = "group"
    SERVICE = "service"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Entity:
    """A thing that can break; `name` is unique within its kind (ranks as `job/3`, checkpoints as `job/step-40`)."""

    kind: EntityKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Direction(StrEnum):
    HIGH = "high"
    LOW = "low"
    CHANGE = "change"
    STOP = "stop"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """Something that is not normal. `score` 1.0 is the threshold; the onset is an interval in seconds since the epoch.

    `evidence` holds small plain facts (exit code, reason, expected value) for the rules of the root-cause engine.
    """

    entity: Entity
    metric: str
    onset_earliest: float
    onset_latest: float
    score: float
    direction: Direction
    detector: str
    observed: float
    expected: float
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One link of the chain that proves a cause."""

    at: float
    entity: Entity
    metric: str
    observed: str
    expected: str
    rule: str


class Standing(StrEnum):
    """Whether a hypothesis is held to be true, or is what else could be."""

    CAUSE = "cause"
    RIVAL = "rival"


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCause:
    """A ranked hypothesis. `fault` is an id of the fault table; `rival` says what separates it from the next best."""

    entity: Entity
    fault: str
    confidence: float
    chain: tuple[Evidence, ...] = ()
    rival: str = ""
    missing: tuple[str, ...] = ()
    standing: Standing = Standing.CAUSE


class IncidentState(StrEnum):
    OPEN = "open"
    DIAGNOSED = "diagnosed"
    ACTING = "acting"
    VERIFYING = "verifying"
    RESOLVED = "resolved"
    ESCALATED = "escalated"
    DISMISSED = "dismissed"


OPEN_STATES = frozenset(
    {
        IncidentState.OPEN,
        IncidentState.DIAGNOSED,
        IncidentState.ACTING,
        IncidentState.VERIFYING,
        IncidentState.ESCALATED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One disturbance of one job, from the first anomaly to the verified recovery.

    `attempt` is the attempt that broke. `diagnosed`, `recovered` (first good step) and `closed` are None until known.
    """

    id: str
    job: str
    attempt: int
    opened: float
    onset: float
    state: IncidentState = IncidentState.OPEN
    anomalies: tuple[Anomaly, ...] = ()
    causes: tuple[RootCause, ...] = ()
    plan: Plan | None = None
    actions: tuple[PlannedAction, ...] = ()
    diagnosed: float | None = None
    recovered: float | None = None
    closed: float | None = None
    notes: tuple[str, ...] = ()
