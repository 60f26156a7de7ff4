"""Carries an incident from its causes to a job that steps again: decide, act, verify, and escalate when that fails.

One call of `handle` is one recovery, on a thread of the caller's. All that matters is in the store before it happens:
after a crash `handle` takes the same incident up where it stood and finishes it exactly once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from everstep.core.actions import ActionKind, Outcome, Plan, PlannedAction
from everstep.core.clock import Clock
from everstep.core.engine import Attempt, ClusterEngine
from everstep.core.errors import EngineError
from everstep.core.events import Anomaly, Incident, IncidentState, RootCause
from everstep.core.progress import ProgressSource
from everstep.core.settings import JobSettings, RecoverySettings
from everstep.core.topology import Topology
from everstep.rca import CauseEvidence, rank_causes
from everstep.recovery import steps
from everstep.recovery.canary import reference_of
from everstep.recovery.guardrails import CHANGING
from everstep.recovery.policy import decide
from everstep.recovery.state import ControllerState, Run
from everstep.recovery.store import IncidentStore
from everstep.recovery.words import Inbox
from everstep.scheduler.hosts import usable_hosts
from everstep.scheduler.placement import gang

MAX_ROUNDS = 6
APPROVAL_TIMEOUT_S = 3600.0
APPROVAL_POLL_S = 1.0
_BEFORE_START: tuple[steps.Step, ...] = (
    steps.dump_stacks,
    steps.stop,
    steps.cordon,
    steps.place,
    steps.choose_checkpoint,
    steps.start,
)

Diagnose = Callable[[Incident], tuple[RootCause, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What tests and other homes replace. `topology` None: the engine's, or an empty one.

    `diagnose` None: `rca.rank_causes` over the placements of the attempt. `pause` None: a wait that new evidence ends.
    """

    topology: Topology | None = None
    diagnose: Diagnose | None = None
    pause: Callable[[float], None] | None = None


class Controller:
    """Thread-safe; recoveries of different jobs may run at one time, those of one job must not."""

    def __init__(
        self,
        engine: ClusterEngine,
        store: IncidentStore,
        progress: ProgressSource,
        settings: RecoverySettings,
        clock: Clock,
        on_change: Callable[[Incident], None],
        *,
        seams: Seams = Seams(),
    ) -> None:
        """`on_change` is called on the thread of `handle` after every saved change."""
        self._engine = engine
        self._store = store
        self._settings = settings
        self._clock = clock
        self._topology = seams.topology or _topology_of(engine)
        self._pause = seams.pause
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self._inbox = Inbox()
        self._ctx = steps.Context(
            engine=engine,
            store=store,
            progress=progress,
            settings=settings,
            clock=clock,
            diagnose=seams.diagnose or self._diagnose,
            changed=on_change,
            began=self.adopt,
            wait=self._wait,
            arrived=self._inbox.take,
        )

    def launch(self, job: JobSettings) -> Attempt:
        """Start the next attempt of a job on nodes of the engine's. Raises `EngineError` or `PlacementError`."""
        last = self._store.last_attempt(job.name)
        snapshot = self._engine.snapshot(timeout_s=self._settings.verb_timeout_s)
        attempt = Attempt(
            job=job.name,
            number=last.number + 1 if last is not None else 1,
            placements=gang(job.world_size, usable_hosts(snapshot, self._topology, job=job.name)),
            skip_batches=last.skip_batches if last is not None else (),
            cold=job.cold,
        )
        self._store.save_attempt(attempt)
        self.adopt(attempt)
        key = f"launch/{attempt.job}/{attempt.number}"
        outcomes = self._engine.start(attempt, key=key, timeout_s=self._settings.start_timeout_s)
        detail = {"job": job.name, "attempt": attempt.number, "outcomes": dict(outcomes.by_node)}
        self._store.audit(self._clock.now(), "launch", detail)
        if outcomes.failed:
            self._engine.stop(attempt, key=f"{key}/stop", timeout_s=self._settings.verb_timeout_s)
            with self._lock:
                self._attempts.pop(job.name, None)
            node, problem = next(iter(sorted(outcomes.failed.items())))
            raise EngineError(f"attempt {attempt.number} of {job.name}: {node}: {problem}", mend="see the agent's log")
        return attempt

    def adopt(self, attempt: Attempt) -> None:
        """Take an attempt that is running for the job's current one."""
        with self._lock:
            self._attempts[attempt.job] = attempt

    def current(self, job: str) -> Attempt | None:
        """The attempt that was launched, adopted or started by a recovery; None before."""
        with self._lock:
            return self._attempts.get(job)

    def evidence(self, incident_id: str, anomalies: tuple[Anomaly, ...]) -> None:
        """News about the attempt that a recovery has started; from any thread. Late news is only audited."""
        if anomalies and not self._inbox.put(incident_id, anomalies):
            self._store.audit(self._clock.now(), "late_evidence", {"incident": incident_id, "count": len(anomalies)})

    def approve(self, incident_id: str) -> bool:
        """Whether a plan was waiting for this word."""
        return self._inbox.say(incident_id, approved=True)

    def reject(self, incident_id: str) -> bool:
        """Whether a plan was waiting for this word."""
        return self._inbox.say(incident_id, approved=False)

    def handle(self, incident: Incident) -> Incident:
        """Blocks until the incident is resolved, dismissed or escalated; also takes up one that was cut off.

        A closed incident comes back as it is.
        """
        if incident.closed is not None:
            return incident
        self._inbox.open(incident.id)
        run = None
        try:
            run = self._begin(incident)
            if steps.running(run.incident):
                run = self._finish_cut_off(run)
                if not run.failure:
                    return self._resolve(run)
            return self._rounds(run)
        except EngineError as error:
            latest = self._store.get(incident.id) or (run.incident if run is not None else incident)
            return self._close(latest, IncidentState.ESCALATED, f"the cluster engine failed: {error}")
        finally:
            self._inbox.close(incident.id)

    def _rounds(self, run: Run) -> Incident:
        while run.round <= MAX_ROUNDS:
            if run.failure:
                run = self._reconsider(run)
            run = self._decide(run)
            answer = self._answer_without_acting(run)
            if answer is not None:
                return answer
            run = self._act(run)
            if not run.failure:
                return self._resolve(run)
        return self._close(self._failed(run).incident, IncidentState.ESCALATED, f"gave up after {MAX_ROUNDS} rounds")

    def _begin(self, incident: Incident) -> Run:
        old = self.current(incident.job) or self._store.last_attempt(incident.job)
        if old is None:
            raise EngineError(f"job {incident.job} has no attempt", mend="launch it first")
        if incident.diagnosed is None and not incident.causes:
            causes = self._ctx.diagnose(incident)
            incident = replace(incident, causes=causes, diagnosed=self._clock.now())
        before = self._ctx.progress.progress(incident.job)
        return Run(
            incident=self._ctx.save(incident),
            old=old,
            snapshot=self._engine.snapshot(timeout_s=self._settings.verb_timeout_s),
            reference=reference_of(before, self._ctx.progress.history(incident.job)),
        )

    def _finish_cut_off(self, run: Run) -> Run:
        """A round that a crash interrupted: start the saved attempt again, or repeat the steps before it."""
        self._ctx.audit("resume", run.incident, actions=len(steps.running(run.incident)))
        stamped = {one.action.params.get("attempt") for one in steps.running(run.incident)}
        if run.old.number not in stamped:
            return self._pipeline(run)
        self.adopt(run.old)
        run = steps.start_again(replace(run, new=run.old), self._ctx)
        return run if run.failure else steps.verify(run, self._ctx)

    def _decide(self, run: Run) -> Run:
        state = ControllerState(
            now=self._clock.now(),
            attempt=run.old,
            snapshot=run.snapshot,
            topology=self._topology,
            settings=self._settings,
            history=tuple(one for one in self._store.incidents() if one.id != run.incident.id),
        )
        plan = decide(run.incident, state)
        self._ctx.audit(
            "decide",
            run.incident,
            round=run.round,
            cause=f"{run.incident.causes[0].entity} {run.incident.causes[0].fault}" if run.incident.causes else "",
            actions=[f"{action.kind} {action.target}" for action in plan.actions],
            refused=list(plan.refused),
            cordoned=[name for name, node in run.snapshot.nodes.items() if node.cordoned],
            unreachable=[name for name, node in run.snapshot.nodes.items() if not node.reachable],
        )
        diagnosed = replace(run.incident, plan=plan, state=IncidentState.DIAGNOSED)
        return replace(run, incident=self._ctx.save(diagnosed))

    def _answer_without_acting(self, run: Run) -> Incident | None:
        """The closed incident of a plan that changes nothing, is only rehearsed, or was not approved."""
        plan = run.incident.plan
        if plan is None:
            raise EngineError("no plan was made", mend="report this as a bug of the controller")
        if not any(action.kind in CHANGING for action in plan.actions):
            watched = all(action.kind is ActionKind.WATCH for action in plan.actions)
            state = IncidentState.DISMISSED if watched else IncidentState.ESCALATED
            return self._close(self._took(run.incident, plan, Outcome.SUCCEEDED), state, _why(plan))
        if self._settings.dry_run:
            taken = self._took(run.incident, plan, Outcome.SKIPPED, "dry run")
            return self._close(taken, IncidentState.ESCALATED, "dry run: nothing was changed")
        if plan.needs_approval:
            return self._approval(run.incident, plan)
        return None

    def _approval(self, incident: Incident, plan: Plan) -> Incident | None:
        """None when a person has approved. A recovery that nobody speaks about is escalated in the end."""
        self._inbox.ask(incident.id)
        self._ctx.audit("approval", incident, actions=[str(action.kind) for action in plan.actions])
        deadline = self._clock.now() + APPROVAL_TIMEOUT_S
        while (word := self._inbox.word(incident.id)) is None and self._clock.now() < deadline:
            if self._pause is not None:
                self._pause(APPROVAL_POLL_S)
            else:
                self._inbox.heard(incident.id, timeout_s=APPROVAL_POLL_S)
        if word:
            return None
        taken = self._took(incident, plan, Outcome.REFUSED, "rejected" if word is False else "no answer")
        if word is False:
            return self._close(taken, IncidentState.DISMISSED, "a person rejected the plan")
        return self._close(taken, IncidentState.ESCALATED, "nobody approved the plan in time")

    def _act(self, run: Run) -> Run:
        plan = run.incident.plan
        now = self._clock.now()
        fresh = tuple(
            PlannedAction(action=action, outcome=Outcome.RUNNING, started=now)
            for action in (plan.actions if plan else ())
        )
        incident = replace(run.incident, state=IncidentState.ACTING, actions=(*run.incident.actions, *fresh))
        return self._pipeline(replace(run, incident=self._ctx.save(incident)))

    def _pipeline(self, run: Run) -> Run:
        for step in _BEFORE_START:
            run = step(run, self._ctx)
            if run.failure:
                return run
        return steps.verify(run, self._ctx)

    def _reconsider(self, run: Run) -> Run:
        """Take the round's actions for failed and look again; the attempt that was started is now the broken one."""
        run = self._failed(run)
        tried, distrusted = run.tried, run.distrusted
        if run.new is not None and run.failure.startswith(steps.WRONG_STEPS):
            tried = (*tried, *([run.new.resume] if run.new.resume is not None else []))
            distrusted = (*distrusted, run.new.number)
        return replace(
            run,
            old=self.current(run.incident.job) or run.old,
            new=None,
            failure="",
            round=run.round + 1,
            tried=tried,
            distrusted=distrusted,
            snapshot=self._engine.snapshot(timeout_s=self._settings.verb_timeout_s),
        )

    def _failed(self, run: Run) -> Run:
        now = self._clock.now()
        self._ctx.audit("failed", run.incident, round=run.round, why=run.failure)
        incident = steps.amend(
            replace(run.incident, recovered=None),
            lambda one: replace(one, outcome=Outcome.FAILED, ended=now, detail=run.failure),
        )
        return steps.noted(replace(run, incident=self._ctx.save(incident)), f"round {run.round}: {run.failure}")

    def _resolve(self, run: Run) -> Incident:
        now = self._clock.now()
        incident = steps.amend(run.incident, lambda one: replace(one, outcome=Outcome.SUCCEEDED, ended=now))
        kept = [one.action.target for one in incident.actions if one.action.kind is ActionKind.PAGE_HUMAN]
        note = "; a person was told" if kept else ""
        return self._close(
            incident, IncidentState.RESOLVED, f"attempt {run.new.number if run.new else '?'} steps{note}"
        )

    def _took(self, incident: Incident, plan: Plan, outcome: Outcome, detail: str = "") -> Incident:
        now = self._clock.now()
        taken = tuple(
            PlannedAction(action=action, outcome=outcome, started=now, ended=now, detail=detail)
            for action in plan.actions
        )
        return replace(incident, actions=(*incident.actions, *taken))

    def _close(self, incident: Incident, state: IncidentState, why: str) -> Incident:
        now = self._clock.now()
        incident = steps.amend(incident, lambda one: replace(one, outcome=Outcome.FAILED, ended=now, detail=why))
        self._ctx.audit(state.value, incident, why=why)
        return self._ctx.save(replace(incident, state=state, closed=now, notes=(*incident.notes, why)))

    def _wait(self, incident_id: str, seconds: float) -> None:
        if self._pause is not None:
            self._pause(seconds)
        else:
            self._inbox.wait(incident_id, seconds)

    def _diagnose(self, incident: Incident) -> tuple[RootCause, ...]:
        attempt = self.current(incident.job) or self._store.last_attempt(incident.job)
        evidence = CauseEvidence(
            job=incident.job,
            attempt=incident.attempt,
            anomalies=incident.anomalies,
            placements=attempt.placements if attempt is not None else (),
            resume_step=attempt.resume.step if attempt is not None and attempt.resume is not None else None,
        )
        return tuple(rank_causes(evidence, self._topology, now=self._clock.now()))


def _why(plan: Plan) -> str:
    return "; ".join((plan.reason, *plan.refused))


def _topology_of(engine: Any) -> Topology:
    """Engines that know their topology say so."""
    topology = getattr(engine, "topology", None)
    return topology if isinstance(topology, Topology) else Topology.of([])
