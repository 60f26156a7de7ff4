"""Our own verdicts to Alertmanager's API v2, so that a page carries the root cause and not its symptoms.

The newest state of each incident is kept and sent by one thread; whoever changes an incident only leaves it here. An
open incident is sent again before Alertmanager forgets it, and when the service dies it ends there by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx
import structlog

from everstep.core.actions import ActionKind
from everstep.core.clock import Clock
from everstep.core.events import EntityKind, Incident, IncidentState
from everstep.core.faults import FAULT_BY_ID, UNKNOWN
from everstep.service.alert_desk import NO_JOB, OWN_ALERT

ENDED = frozenset({IncidentState.RESOLVED, IncidentState.DISMISSED})
REFRESH_S = 60.0
LASTS_S = 300.0
ESCALATED_LASTS_S = 3600.0
MAX_HELD = 500
MAX_TRIES = 8
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
SEND_TIMEOUT_S = 3.0
SEVERITY = {1: "critical", 2: "warning", 3: "warning"}

Alert = dict[str, Any]


class Sender(Protocol):
    """Raises `httpx.HTTPError` when the alerts did not arrive."""

    def __call__(self, alerts: Sequence[Alert]) -> None: ...


@dataclass(slots=True)
class _Held:
    """One incident on its way; `labels` are those of its first post, for they are the alert's identity."""

    incident: Incident
    labels: dict[str, str]
    due: float
    tries: int = 0


class AlertPost:
    """`put` is called from any thread and never waits; `turn` is one round of the thread."""

    def __init__(self, send: Sender, clock: Clock, *, public_url: str, on_outcome: Callable[[str], None]) -> None:
        """`public_url` is where people reach the service; it stands before the links."""
        self._send = send
        self._clock = clock
        self._public_url = public_url.rstrip("/")
        self._on_outcome = on_outcome
        self._log = structlog.get_logger()
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="everstep-alert-post", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_s: float) -> None:
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def put(self, incident: Incident) -> None:
        """Take the newest state of an incident; those without a verdict, and alerts told by others, are left out."""
        if incident.diagnosed is None or incident.id.startswith("alert-"):
            return
        with self._lock:
            held = self._held.get(incident.id)
            if held is None and incident.state in ENDED and incident.state is not IncidentState.RESOLVED:
                return  # dismissed before anybody was told
            if held is None and len(self._held) >= MAX_HELD:
                self._on_outcome("dropped")
                return
            labels = held.labels if held is not None else labels_of(incident)
            self._held[incident.id] = _Held(incident=incident, labels=labels, due=self._clock.now())
        self._wake.set()

    def turn(self) -> None:
        """Send what is due."""
        now = self._clock.now()
        with self._lock:
            due = [held for held in self._held.values() if held.due <= now]
        if not due:
            return
        try:
            self._send([alert_of(held.incident, held.labels, public_url=self._public_url, now=now) for held in due])
        except httpx.HTTPError as error:
            self._failed(due, now, error)
        else:
            self._sent(due, now)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(FIRST_RETRY_S)
            self._wake.clear()
            try:
                self.turn()
            except Exception:  # noqa: BLE001 - thread boundary: one bad round must not end the posting
                self._on_outcome("failed")
                self._log.exception("alert_post_turn_failed")

    def _sent(self, sent: Sequence[_Held], now: float) -> None:
        for held in sent:
            self._on_outcome("sent")
            held.due, held.tries = now + REFRESH_S, 0
            if held.incident.state in ENDED or held.incident.state is IncidentState.ESCALATED:
                self._forget(held)

    def _failed(self, failed: Sequence[_Held], now: float, error: Exception) -> None:
        self._log.warning("alert_post_failed", error=str(error), alerts=len(failed))
        for held in failed:
            held.tries += 1
            held.due = now + min(FIRST_RETRY_S * 2 ** (held.tries - 1), LONGEST_RETRY_S)
            gave_up = held.tries >= MAX_TRIES
            self._on_outcome("dropped" if gave_up else "failed")
            if gave_up:
                self._forget(held)

    def _forget(self, held: _Held) -> None:
        """Unless something newer has been left in its place."""
        with self._lock:
            if self._held.get(held.incident.id) is held:
                del self._held[held.incident.id]


def labels_of(incident: Incident) -> dict[str, str]:
    """Identity and routing: severity and action follow from the fault, the place from the first cause."""
    cause = incident.causes[0] if incident.causes else None
    fault = FAULT_BY_ID.get(cause.fault, UNKNOWN) if cause is not None else UNKNOWN
    action = fault.default_actions[0] if fault.default_actions else ActionKind.PAGE_HUMAN
    labels = {
        "alertname": OWN_ALERT,
        "severity": SEVERITY[fault.severity],
        "component": "service",
        "fault": fault.id,
        "action": action.value,
    }
    if incident.job != NO_JOB:
        labels["train_job"] = incident.job
    if cause is not None and cause.entity.kind in {EntityKind.RANK, EntityKind.PROCESS}:
        labels["rank"] = cause.entity.name.rpartition("/")[2]
    node = _node(incident)
    return {**labels, "node": node} if node else labels


def alert_of(incident: Incident, labels: dict[str, str], *, public_url: str, now: float) -> Alert:
    """One entry of `POST /api/v2/alerts`. An incident that has ended ends the alert."""
    page = f"{public_url}/api/v1/incidents/{incident.id}/report"
    cause = incident.causes[0] if incident.causes else None
    fault = FAULT_BY_ID.get(cause.fault, UNKNOWN) if cause is not None else UNKNOWN
    where = str(cause.entity) if cause is not None else f"job {incident.job}"
    lasts_s = ESCALATED_LASTS_S if incident.state is IncidentState.ESCALATED else LASTS_S
    ends_at = (incident.closed or now) if incident.state in ENDED else now + lasts_s
    return {
        "labels": labels,
        "annotations": {
            "summary": f"{fault.name} of {where} stopped or slowed {incident.job}",
            "description": f"Remedy: {fault.remedy}. State: {incident.state.value}.",
            "cause": f"{fault.id} {fault.name}: {where}",
            "confidence": f"{cause.confidence:.2f}" if cause is not None else "0.00",
            "incident": incident.id,
            "runbook_url": f"docs/faults.md#{fault.id.lower()}-{fault.name}",
            "report_url": page,
        },
        "startsAt": _rfc3339(min(incident.onset, ends_at)),
        "endsAt": _rfc3339(ends_at),
        "generatorURL": page,
    }


def sender(url: str) -> Sender:
    """Posts to the Alertmanager at this address."""

    def send(alerts: Sequence[Alert]) -> None:
        answer = httpx.post(f"{url.rstrip('/')}/api/v2/alerts", json=list(alerts), timeout=SEND_TIMEOUT_S)
        answer.raise_for_status()

    return send


def _node(incident: Incident) -> str:
    if not incident.causes:
        return ""
    entity = incident.causes[0].entity
    if entity.kind is EntityKind.NODE:
        return entity.name
    if entity.kind in {EntityKind.GPU, EntityKind.NIC}:
        return entity.name.partition("/")[0]
    named = (one.evidence.get("node") for one in incident.anomalies if one.entity.name == entity.name)
    return next((node for node in named if isinstance(node, str) and node), "")


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
