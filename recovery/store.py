"""What must survive a restart of the controller: incidents, attempts and the audit trail."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from everstep.core.engine import Attempt
from everstep.core.events import Incident


class IncidentStore(Protocol):
    """Thread-safe; a save is durable when it returns. The SQLite implementation lives in the service."""

    def save(self, incident: Incident) -> None: ...

    def get(self, incident_id: str) -> Incident | None: ...

    def incidents(self, job: str | None = None) -> tuple[Incident, ...]:
        """Oldest first."""
        ...

    def audit(self, at: float, kind: str, detail: Mapping[str, Any]) -> None: ...

    def save_attempt(self, attempt: Attempt) -> None: ...

    def last_attempt(self, job: str) -> Attempt | None: ...


class MemoryStore:
    """Keeps everything in memory; for tests and for trying things out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._incidents: dict[str, Incident] = {}
        self._attempts: dict[str, list[Attempt]] = {}
        self._audit: list[tuple[float, str, dict[str, Any]]] = []

    def save(self, incident: Incident) -> None:
        with self._lock:
            self._incidents[incident.id] = incident

    def get(self, incident_id: str) -> Incident | None:
        with self._lock:
            return self._incidents.get(incident_id)

    def incidents(self, job: str | None = None) -> tuple[Incident, ...]:
        with self._lock:
            return tuple(one for one in self._incidents.values() if job is None or one.job == job)

    def audit(self, at: float, kind: str, detail: Mapping[str, Any]) -> None:
        with self._lock:
            self._audit.append((at, kind, dict(detail)))

    def audit_trail(self) -> tuple[tuple[float, str, dict[str, Any]], ...]:
        with self._lock:
            return tuple(self._audit)

    def save_attempt(self, attempt: Attempt) -> None:
        with self._lock:
            self._attempts.setdefault(attempt.job, []).append(attempt)

    def last_attempt(self, job: str) -> Attempt | None:
        with self._lock:
            known = self._attempts.get(job)
            return known[-1] if known else None
