"""One job's incidents: when one opens, what it waits for, when it is diagnosed and who handles it.

At most one incident of a job is open at a time. Decisive evidence (a death by signal, a process that stands still, bad
numbers in a rank's own input, an unreachable node) is diagnosed at once; anything else settles first, and deaths that
may be those of victims wait for a probe of the agents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from everstep.core.engine import Attempt
from everstep.core.events import Anomaly, Incident, IncidentState, RootCause
from everstep.core.settings import DetectorSettings
from everstep.detector.nonfinite import is_located
from everstep.detector.process import is_decisive, is_victim
from everstep.service.watch import Findings

PROBE_EVERY_S = 0.5
STALL_PROBE_EVERY_S = 1.0
VICTIMS_WAIT_S = 2.5  # longest wait for whatever made the victims die, before a verdict without it
QUIET = frozenset({"checkpoint_age"})  # told, but nothing that a job would be stopped for


class Handler(Protocol):
    """The part of `recovery.controller.Controller` that the monitor needs."""

    def current(self, job: str) -> Attempt | None: ...

    def handle(self, incident: Incident) -> Incident: ...

    def evidence(self, incident_id: str, anomalies: tuple[Anomaly, ...]) -> None: ...


Ranker = Callable[[Attempt, tuple[Anomaly, ...], float], list[RootCause]]
"""(attempt, anomalies, now) to ranked causes; `rca.rank_causes` with the topology filled in."""


@dataclass(slots=True)
class _Open:
    incident: Incident
    since: float
    probed: float | None = None
    probe_told: bool = False


class JobCase:
    """The decisions of one job, without threads: the monitor calls it and does what it asks for."""

    def __init__(self, job: str, settings: DetectorSettings, *, settle_s: float) -> None:
        self._job = job
        self._settings = settings
        self._settle_s = settle_s
        self._open: _Open | None = None
        self._handling: Incident | None = None
        self._closed: Incident | None = None
        self._closed_at = 0.0
        self._probed_at = float("-inf")

    @property
    def handling(self) -> Incident | None:
        return self._handling

    @property
    def collecting(self) -> Incident | None:
        """The incident that has opened and has no verdict yet."""
        return self._open.incident if self._open is not None else None

    def take(self, attempt: Attempt, findings: Findings, *, stepped_at: float, now: float) -> Incident | None:
        """Add what is new to the open incident, or open one; returns it when it has just opened.

        `stepped_at` is when the attempt last finished a step.
        """
        if self._handling is not None:
            return None
        fresh = tuple(anomaly for anomaly in findings.fresh if anomaly.detector not in QUIET)
        if self._open is not None:
            held = self._open.incident
            self._open.incident = replace(held, anomalies=(*held.anomalies, *fresh))
            return None
        overdue = self._overdue(findings, now)
        if not fresh and overdue is None:
            return None
        if self._closed is not None and self._closed.attempt == attempt.number and stepped_at <= self._closed_at:
            return None  # the same breakage; a person has been told
        if overdue is not None or findings.stalled is not None:
            fresh = (*fresh, *(anomaly for anomaly in [findings.stalled] if anomaly is not None))
        incident = Incident(
            id=f"{self._job}-{attempt.number}-{int(now * 1000):x}".replace("/", "-"),
            job=self._job,
            attempt=attempt.number,
            opened=now,
            onset=min(anomaly.onset_latest for anomaly in fresh),
            anomalies=fresh,
        )
        self._open = _Open(incident=incident, since=now)
        return incident

    def probe_due(self, findings: Findings, *, starting: bool, now: float) -> bool:
        """Whether the agents should be asked now; a True counts as asked."""
        every_s = None
        if self._open is not None and self._wants_probe(self._open, now):
            every_s = PROBE_EVERY_S
        elif findings.stalled is not None or findings.silent or starting:
            every_s = STALL_PROBE_EVERY_S
        if every_s is None or now - self._probed_at < every_s:
            return False
        self._probed_at = now
        if self._open is not None:
            self._open.probed = now
        return True

    def probe_told(self) -> None:
        """The answer of the last probe is in the findings."""
        if self._open is not None and self._open.probed is not None:
            self._open.probe_told = True

    def verdict_due(self, now: float) -> Incident | None:
        """The open incident when its evidence is complete enough to name a cause."""
        if self._open is None:
            return None
        found = self._open.incident.anomalies
        if any(is_decisive(anomaly) or is_located(anomaly) or anomaly.detector == "liveness" for anomaly in found):
            return self._open.incident
        if now - self._open.since < self._settle_s:
            return None
        return None if self._wants_probe(self._open, now) else self._open.incident

    def diagnose(self, causes: list[RootCause], now: float) -> Incident:
        """Close the collection with a verdict; the incident is now in the controller's hands."""
        if self._open is None:
            raise RuntimeError("no incident is open")
        held = self._open.incident
        self._handling = replace(
            held,
            state=IncidentState.DIAGNOSED,
            onset=min(anomaly.onset_latest for anomaly in held.anomalies),
            causes=tuple(causes),
            diagnosed=now,
        )
        self._open = None
        return self._handling

    def take_up(self, incident: Incident) -> None:
        """The controller goes on with a recovery of a former process."""
        self._handling = incident

    def close(self, incident: Incident, now: float) -> None:
        """The controller is done with it."""
        self._handling = None
        self._closed = incident
        self._closed_at = now

    def _wants_probe(self, held: _Open, now: float) -> bool:
        """Ends that may be those of victims are looked into before anybody is blamed; victims alone for longer."""
        found = held.incident.anomalies
        if now - held.since >= VICTIMS_WAIT_S or not any(one.detector in {"process", "progress"} for one in found):
            return False
        victims = [one for one in found if is_victim(one)]
        return not held.probe_told or (
            bool(victims) and all(one.detector == "progress" or one in victims for one in found)
        )

    def _overdue(self, findings: Findings, now: float) -> Anomaly | None:
        """A stall that stands without any other evidence for so long that it counts by itself."""
        stalled = findings.stalled
        if stalled is None:
            return None
        if stalled.evidence.get("phase") == "startup":
            return stalled
        return stalled if now - stalled.onset_earliest >= self._settings.unconfirmed_hang_s else None
