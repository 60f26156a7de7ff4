"""What becomes of an alert that Prometheus' rules raised: evidence for a running job's incident, a word to a person.

Only a critical alert whose fault has a remedy, on a running job, enters the path on which the controller acts; there
the live detectors' own findings meet it. Faults whose action is to watch or to page are recorded and nothing is
carried out. An alert that echoes a recovery which is under way or just over never starts another one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Protocol

from everstep.core.actions import ActionKind
from everstep.core.clock import Clock
from everstep.core.engine import Attempt
from everstep.core.events import (
    OPEN_STATES,
    Anomaly,
    Direction,
    Entity,
    EntityKind,
    Evidence,
    Incident,
    IncidentState,
    RootCause,
)
from everstep.core.faults import FAULT_BY_ID, UNKNOWN, Fault
from everstep.core.metrics import METRIC_BY_NAME
from everstep.service.notices import Notice, Seen

OWN_ALERT = "EverstepIncident"
NO_JOB = "-"
"""Stands for the job of an incident that touches none; no job can be named so."""

ECHO_S = 900.0
"""Rules look back up to this far, so an alert can start this long after what it tells of was mended."""

STORM_PER_MINUTE = 20
PASSIVE = frozenset({ActionKind.WATCH, ActionKind.PAGE_HUMAN, ActionKind.FIX_SERVICE})


class Received(StrEnum):
    """What became of one alert of one delivery."""

    DUPLICATE = "duplicate"
    OWN = "own"
    IGNORED = "ignored"
    WATCHED = "watched"
    REPORTED = "reported"
    TOLD = "told"
    ECHO = "echo"
    RESOLVED = "resolved"
    STORM = "storm"


class Store(Protocol):
    """The part of the incident store that the desk needs."""

    def save(self, incident: Incident) -> None: ...

    def get(self, incident_id: str) -> Incident | None: ...

    def incidents(self, job: str | None = None) -> tuple[Incident, ...]: ...

    def audit(self, at: float, kind: str, detail: Mapping[str, Any]) -> None: ...


class Watcher(Protocol):
    """The part of the monitor that takes alerts in; thread-safe."""

    def running(self) -> tuple[Attempt, ...]: ...

    def began(self, job: str) -> float: ...

    def note(self, job: str, anomaly: Anomaly) -> None: ...

    def report(self, job: str, anomaly: Anomaly) -> None: ...

    def keep(self, incident: Incident) -> None: ...


class AlertDesk:
    """Thread-safe; `take` never waits on the network."""

    def __init__(self, store: Store, watcher: Watcher, clock: Clock) -> None:
        self._store = store
        self._watcher = watcher
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = Seen()
        self._told: deque[float] = deque(maxlen=STORM_PER_MINUTE)

    def take(self, notice: Notice) -> Received:
        with self._lock:
            if not self._seen.first(notice.key):
                return Received.DUPLICATE
            if notice.name == OWN_ALERT:
                return Received.OWN
            fault = FAULT_BY_ID.get(notice.label("fault"))
            if fault is None or fault is UNKNOWN:
                return Received.IGNORED
            return self._firing(notice, fault) if notice.firing else self._over(notice)

    def _firing(self, notice: Notice, fault: Fault) -> Received:
        attempt = self._attempt(notice)
        job = attempt.job if attempt is not None else NO_JOB
        anomaly = anomaly_of(notice, fault, now=self._clock.now())
        self._watcher.note(job, anomaly)
        if notice.label("severity") != "critical":
            return Received.WATCHED
        if self._echoes(notice, attempt, fault):
            return Received.ECHO
        if attempt is not None and acts(notice, fault) and notice.starts_at >= self._watcher.began(job):
            self._watcher.report(job, anomaly)
            return Received.REPORTED
        return self._tell(notice, fault, anomaly, attempt)

    def _attempt(self, notice: Notice) -> Attempt | None:
        """The running attempt that the alert is about: of its job, or on its node."""
        job, node = notice.label("train_job"), notice.label("node")
        running = self._watcher.running()
        if job:
            return next((attempt for attempt in running if attempt.job == job), None)
        return next((attempt for attempt in running if node and node in attempt.nodes), None)

    def _echoes(self, notice: Notice, attempt: Attempt | None, fault: Fault) -> bool:
        """Whether a recovery from this fault is under way or ended a short while ago: of the job, or off the node.

        Once a job has moved off a bad node nothing runs there any more, and the node's alerts still tell of the fault.
        """
        since = self._clock.now() - ECHO_S
        return any(
            incident.causes[0].fault == fault.id
            and (attempt is not None or node_of(incident.causes[0].entity) == notice.label("node") != "")
            for incident in self._store.incidents(attempt.job if attempt is not None else None)
            if incident.causes
            and (attempt is not None or incident.job != NO_JOB)
            and (incident.closed is None or incident.closed >= since)
        )

    def _tell(self, notice: Notice, fault: Fault, anomaly: Anomaly, attempt: Attempt | None) -> Received:
        now, key = self._clock.now(), incident_id(notice)
        if self._store.get(key) is not None:
            return Received.DUPLICATE
        if len(self._told) == STORM_PER_MINUTE and now - self._told[0] < 60.0:
            return Received.STORM
        self._told.append(now)
        seen = Evidence(
            at=notice.starts_at,
            entity=anomaly.entity,
            metric=anomaly.metric,
            observed=notice.annotations.get("summary", notice.name)[:300],
            expected="silence",
            rule=f"alert {notice.name}",
        )
        self._watcher.keep(
            Incident(
                id=key,
                job=attempt.job if attempt is not None else NO_JOB,
                attempt=attempt.number if attempt is not None else 0,
                opened=now,
                onset=notice.starts_at,
                state=IncidentState.ESCALATED,
                anomalies=(anomaly,),
                causes=(RootCause(entity=anomaly.entity, fault=fault.id, confidence=1.0, chain=(seen,)),),
                diagnosed=now,
                notes=(f"told by the alert {notice.name}; nothing was changed",),
            )
        )
        self._store.audit(now, "alert", {"incident": key, "alert": notice.name, "fault": fault.id})
        return Received.TOLD

    def _over(self, notice: Notice) -> Received:
        told = self._store.get(incident_id(notice))
        if told is not None and told.state in OPEN_STATES:
            note = "the alert is over"
            now = self._clock.now()
            self._watcher.keep(replace(told, state=IncidentState.RESOLVED, closed=now, notes=(*told.notes, note)))
        return Received.RESOLVED


def acts(notice: Notice, fault: Fault) -> bool:
    """Whether the fault and the alert's own label both ask for something that changes the job or its nodes."""
    said = notice.label("action")
    return fault.default_actions[0] not in PASSIVE and not fault.monitoring and said not in {*PASSIVE, "none"}


def node_of(entity: Entity) -> str:
    """The node that an entity is, or is a part of; empty for what has none in its name."""
    parts = {EntityKind.NODE, EntityKind.GPU, EntityKind.NIC}
    return entity.name.partition("/")[0] if entity.kind in parts else ""


def incident_id(notice: Notice) -> str:
    """The same for all deliveries of one firing, also after a restart of the service."""
    word = "".join(letter for letter in notice.fingerprint if letter.isalnum() and letter.isascii())[:32]
    return f"alert-{word or 'none'}-{int(notice.starts_at * 1000):x}"


def anomaly_of(notice: Notice, fault: Fault, *, now: float) -> Anomaly:
    """The alert as an anomaly of the fault's first symptom."""
    symptom = next((one for one in fault.symptoms if one.metric in METRIC_BY_NAME), None)
    facts = {
        "fault": fault.id,
        "alert": notice.name,
        "severity": notice.label("severity"),
        "action": notice.label("action"),
        "node": notice.label("node"),
        "summary": notice.annotations.get("summary", "")[:300],
    }
    at = min(notice.starts_at, now)
    return Anomaly(
        entity=entity_of(notice, fault),
        metric=symptom.metric if symptom is not None else "ALERTS",
        onset_earliest=at,
        onset_latest=at,
        score=1.0,
        direction=symptom.direction if symptom is not None else Direction.HIGH,
        detector="alert",
        observed=1.0,
        expected=0.0,
        evidence={name: value for name, value in facts.items() if value},
    )


def entity_of(notice: Notice, fault: Fault) -> Entity:
    """The likeliest root of the fault that the labels name; else the narrowest entity that they name at all."""
    named = _named(notice)
    kind = next((kind for kind in fault.root_kind if kind in named), None) or next(iter(named), EntityKind.UNKNOWN)
    return Entity(kind=kind, name=named.get(kind, notice.name or "unknown"))


def _named(notice: Notice) -> dict[EntityKind, str]:
    """Entities that the labels name, narrowest first; parts are named after their node, ranks after their job."""
    node, job = notice.label("node"), notice.label("train_job")
    found: dict[EntityKind, str] = {}
    if node and notice.label("gpu"):
        found[EntityKind.GPU] = f"{node}/{notice.label('gpu')}"
    if node and notice.label("device"):
        found[EntityKind.NIC] = f"{node}/{notice.label('device')}"
    if job and notice.label("rank"):
        found[EntityKind.RANK] = found[EntityKind.PROCESS] = f"{job}/{notice.label('rank')}"
    if node:
        found[EntityKind.NODE] = node
    if job:
        found[EntityKind.JOB] = job
    if notice.label("rack"):
        found[EntityKind.RACK] = notice.label("rack")
    return found
