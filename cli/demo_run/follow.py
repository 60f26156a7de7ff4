"""Watching one run through the service's API and the step journal, and telling it as it happens."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

from everstep.cli.demo_run.cluster import Cluster
from everstep.cli.demo_run.evidence import read_resumes, read_steps
from everstep.cli.demo_run.scenario import JOB
from everstep.cli.demo_run.screen import Screen
from everstep.cli.demo_run.verdict import Injection, StepLine
from everstep.core.errors import EverstepError
from everstep.core.events import OPEN_STATES, Incident, IncidentState
from everstep.core.faults import FAULT_BY_ID
from everstep.service.records import incident_from

POLL_S = 0.2
"""Nothing is measured by polling: every time in a verdict was stamped by the process that saw it."""
UNNOTICED_S = 20.0
LINGER_S = 2.0
REVISED = frozenset({"culprit"})
"""Marks that are told again when they change: damage found at the recovery may name another cause."""


class Follower:
    """Polls until the job has ended and its incidents are closed; prints each mark once."""

    def __init__(self, cluster: Cluster, screen: Screen, *, total_steps: int, deadline: float) -> None:
        self._cluster = cluster
        self._screen = screen
        self._total_steps = total_steps
        self._deadline = deadline
        self._told: set[tuple[str, str]] = set()
        self._dead: frozenset[str] = frozenset()

    def expect_dead(self, nodes: frozenset[str]) -> None:
        self._dead = nodes

    def wait_learned(self) -> Mapping[str, Any]:
        """The job's baseline, once learned."""
        while True:
            baseline = self._cluster.service.get("/api/v1/baselines")["jobs"].get(JOB, {})
            steps = self._show_steps()
            if baseline.get("learned"):
                return dict(baseline)
            if steps and steps[-1].step >= self._total_steps:
                raise EverstepError("the job ended before its baseline was learned", mend="give more --steps")
            self._pause("a learned baseline")

    def wait_end(self, injection: Injection | None) -> tuple[Incident, ...]:
        """Every incident of the job, once it has done its last step and none is open.

        An escalated incident, a fault that nobody notices and the deadline end the wait, too: the verdict then says
        what is missing.
        """
        done_at = math.inf
        while True:
            incidents = self.incidents()
            if injection is not None:
                self._tell(incidents, injection)
                self._tell_resume(injection)
            steps = self._show_steps()
            now = time.monotonic()
            if steps and steps[-1].step >= self._total_steps:
                done_at = min(done_at, now)
            escalated = any(incident.state is IncidentState.ESCALATED for incident in incidents)
            settled = all(incident.state not in OPEN_STATES for incident in incidents)
            noticed = injection is None or any(incident.opened >= injection.at for incident in incidents)
            healed = now >= done_at and settled and noticed
            if healed or escalated or now > min(self._deadline, done_at + UNNOTICED_S):
                return incidents
            self._pause(None)

    def linger(self) -> tuple[Incident, ...]:
        """The incidents once more, a moment after the end: nothing may open because a job has ended."""
        time.sleep(LINGER_S)
        return self.incidents()

    def incidents(self) -> tuple[Incident, ...]:
        found = [incident_from(json.dumps(one)) for one in self._cluster.service.get("/api/v1/incidents")["incidents"]]
        return tuple(sorted((one for one in found if one.job == JOB), key=lambda one: one.opened))

    def _show_steps(self) -> tuple[StepLine, ...]:
        steps = read_steps(self._cluster.layout.job_dir(JOB))
        if steps:
            self._screen.step(steps[-1].step, steps[-1].loss, f"attempt {steps[-1].attempt}")
        return steps

    def _pause(self, what: str | None) -> None:
        self._cluster.check_alive(except_nodes=self._dead)
        if what is not None and time.monotonic() > self._deadline:
            raise EverstepError(f"waited too long for {what}", mend="run again with --keep and read the logs")
        time.sleep(POLL_S)

    def _tell(self, incidents: tuple[Incident, ...], injection: Injection) -> None:
        for incident in incidents:
            for at, label, detail in marks(incident):
                told = (incident.id, f"{label} {detail}" if label in REVISED else label)
                if told not in self._told:
                    self._told.add(told)
                    self._screen.event(at - injection.at, label, detail)

    def _tell_resume(self, injection: Injection) -> None:
        for line in read_resumes(self._cluster.layout.job_dir(JOB)):
            told = ("resume", str(line.attempt))
            if line.at > injection.at and told not in self._told:
                self._told.add(told)
                said = f"step {line.step} from {line.tier}" if line.tier else "a fresh start"
                self._screen.event(line.at - injection.at, f"attempt {line.attempt} restored", said)


def marks(incident: Incident) -> list[tuple[float, str, str]]:
    """What has happened in an incident so far, in order: time, label, detail."""
    seen = [(incident.opened, "found", _anomalies(incident))]
    if incident.diagnosed is not None and incident.causes:
        first = incident.causes[0]
        said = f"{first.entity}, {FAULT_BY_ID[first.fault].title}, confidence {first.confidence:.2f}"
        seen.append((incident.diagnosed, "culprit", said))
        if incident.plan is not None:
            planned = ", ".join(action.kind.value for action in incident.plan.actions)
            seen.append((incident.diagnosed, "plan", planned))
    seen += [
        (done.ended, f"{done.action.kind} {done.outcome}", done.detail)
        for done in incident.actions
        if done.ended is not None
    ]
    if incident.recovered is not None:
        seen.append((incident.recovered, "first good step", ""))
    if incident.closed is not None:
        seen.append((incident.closed, str(incident.state), "; ".join(incident.notes)))
    return sorted(seen, key=lambda mark: mark[0])


def _anomalies(incident: Incident) -> str:
    if not incident.anomalies:
        return "no detail"
    first = min(incident.anomalies, key=lambda one: one.onset_latest)
    more = f", and {len(incident.anomalies) - 1} more" if len(incident.anomalies) > 1 else ""
    return f"{first.entity} by {first.detector}{more}"
