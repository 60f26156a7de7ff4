"""The steps of a recovery, each from run to run with an explicit timeout; a set `failure` skips the rest.

Every verb carries a key made of the incident and the attempt, so that a step which is repeated after a crash of the
controller changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from everstep.core.actions import Action, ActionKind, Outcome, PlannedAction
from everstep.core.clock import Clock
from everstep.core.engine import Attempt, ClusterEngine, RankPlacement, ResumePoint
from everstep.core.errors import EngineError
from everstep.core.events import Anomaly, Incident, IncidentState, RootCause
from everstep.core.exits import WorkerExit, exit_reason
from everstep.core.progress import ProgressSource
from everstep.core.settings import RecoverySettings
from everstep.recovery import observe
from everstep.recovery.canary import Canary, first_end, judge
from everstep.recovery.ladder import BROKE_AGAIN
from everstep.recovery.resume import DISK, ResumeChoice, choose
from everstep.recovery.state import Run
from everstep.recovery.store import IncidentStore
from everstep.scheduler.placement import PlacementError

POLL_S = 0.05
LOOK_EVERY_S = 1.0
STACKS_TIMEOUT_S = 2.5
MAX_NOTE = 400
WRONG_STEPS = "the first steps are wrong: "
_CHECKPOINT_EXIT = exit_reason(WorkerExit.CHECKPOINT)
Step = Callable[[Run, "Context"], Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the steps work with. `wait` sleeps or returns early with new evidence; `arrived` takes that evidence."""

    engine: ClusterEngine
    store: IncidentStore
    progress: ProgressSource
    settings: RecoverySettings
    clock: Clock
    diagnose: Callable[[Incident], tuple[RootCause, ...]]
    changed: Callable[[Incident], None]
    began: Callable[[Attempt], None]
    wait: Callable[[str, float], None]
    arrived: Callable[[str], tuple[Anomaly, ...]]

    def save(self, incident: Incident) -> Incident:
        self.store.save(incident)
        self.changed(incident)
        return incident

    def audit(self, kind: str, incident: Incident, **detail: Any) -> None:
        self.store.audit(self.clock.now(), kind, {"incident": incident.id, "job": incident.job, **detail})


def dump_stacks(run: Run, ctx: Context) -> Run:
    """Only for hangs: the stacks are the evidence that a restart destroys."""
    if not any(one.action.params.get("stacks") for one in running(run.incident)):
        return run
    try:
        stacks = ctx.engine.dump_stacks(run.old, timeout_s=min(STACKS_TIMEOUT_S, ctx.settings.verb_timeout_s))
    except EngineError as error:
        ctx.audit("stacks", run.incident, problem=str(error))
        return run
    ctx.audit("stacks", run.incident, stacks={str(rank): text for rank, text in stacks.items()})
    return replace(noted(run, f"stacks of {len(stacks)} ranks are in the audit trail"), stacks=dict(stacks))


def stop(run: Run, ctx: Context) -> Run:
    """End what is left of the old attempt. Nodes that do not answer are fenced by the attempt number."""
    key = f"{run.incident.id}/stop/{run.old.number}"
    outcomes = ctx.engine.stop(run.old, key=key, timeout_s=ctx.settings.verb_timeout_s)
    ctx.audit("stop", run.incident, attempt=run.old.number, outcomes=dict(outcomes.by_node))
    return run


def cordon(run: Run, ctx: Context) -> Run:
    for node in sorted(isolated(run.incident)):
        outcomes = ctx.engine.cordon(
            node,
            key=f"{run.incident.id}/cordon/{node}",
            reason=f"incident {run.incident.id}",
            timeout_s=ctx.settings.verb_timeout_s,
        )
        ctx.audit("cordon", run.incident, node=node, outcomes=dict(outcomes.by_node))
    return run


def place(run: Run, ctx: Context) -> Run:
    """Static membership of the next attempt, still without a resume point."""
    try:
        placements = _placements(run, ctx)
    except (PlacementError, EngineError) as error:
        return replace(run, failure=str(error))
    last = ctx.store.last_attempt(run.old.job)
    seen = [
        worker.attempt for node in run.snapshot.nodes.values() for worker in node.workers if worker.job == run.old.job
    ]
    number = max([run.old.number, last.number if last is not None else 0, *seen]) + 1
    skips = tuple(sorted({*run.old.skip_batches, *skipped_batches(run.incident)}))
    new = replace(run.old, number=number, placements=placements, skip_batches=skips, resume=None)
    ctx.audit("place", run.incident, attempt=number, nodes={str(one.rank): one.node for one in placements})
    return replace(run, new=new)


def choose_checkpoint(run: Run, ctx: Context) -> Run:
    """Verify the committed copies and pick one; damage found here is evidence and may change the first cause."""
    new = _new(run)
    copies = ctx.engine.checkpoints(new, timeout_s=ctx.settings.verb_timeout_s)
    before = next(
        (
            one.action.params.get("before_step")
            for one in running(run.incident)
            if one.action.params.get("before_step") is not None
        ),
        None,
    )
    if new.world_size != run.old.world_size:
        copies = tuple(copy for copy in copies if copy.tier == DISK)  # only disk checkpoints can be cut anew
    choice = choose(copies, last=run.old, nodes=new.nodes, avoid=run.tried, distrust=run.distrusted, before_step=before)
    ctx.audit(
        "checkpoints",
        run.incident,
        copies=len(copies),
        chosen=_plain(choice.point),
        skipped=[{**_plain(one.point), "why": one.why} for one in choice.skipped],
    )
    if choice.point is None and not choice.from_scratch:
        return replace(run, copies=copies, failure="no committed checkpoint can be used")
    run = replace(run, copies=copies, new=replace(new, resume=choice.point))
    return _rediagnosed(run, choice, ctx)


def start(run: Run, ctx: Context) -> Run:
    """The attempt is saved before it starts: after a crash the same one is started again, never a second one."""
    new = _new(run)
    stamp = {"attempt": new.number, "resume": _plain(new.resume)}
    incident = amend(run.incident, lambda one: replace(one, action=_with(one.action, stamp)))
    ctx.store.save_attempt(new)
    ctx.began(new)
    run = replace(run, incident=ctx.save(replace(incident, state=IncidentState.VERIFYING)))
    return start_again(run, ctx)


def start_again(run: Run, ctx: Context) -> Run:
    """The idempotent half of `start`."""
    new = _new(run)
    outcomes = ctx.engine.start(
        new, key=f"{run.incident.id}/start/{new.number}", timeout_s=ctx.settings.start_timeout_s
    )
    ctx.audit("start", run.incident, attempt=new.number, outcomes=dict(outcomes.by_node))
    if not outcomes.failed:
        return run
    found = observe.troubles(ctx.engine.snapshot(timeout_s=ctx.settings.verb_timeout_s), new)
    if found:
        return _broke(run, found, ctx)
    node, problem = next(iter(sorted(outcomes.failed.items())))
    return replace(run, failure=f"{BROKE_AGAIN}{node} did not start: {problem}")


def verify(run: Run, ctx: Context) -> Run:
    """Watch the first steps. New evidence, a bad step or a missed deadline end it with a failure."""
    new = _new(run)
    began = looked = ctx.clock.now()
    deadline = began + ctx.settings.start_timeout_s
    while True:
        fresh = observe.relevant(ctx.arrived(run.incident.id), new)
        if fresh:
            return _broke(run, fresh, ctx)
        judgement = judge(ctx.progress.progress(new.job), run.reference, new, steps=ctx.settings.canary_steps)
        if judgement.verdict is Canary.BAD:
            return replace(run, failure=f"{WRONG_STEPS}{judgement.why}")
        if judgement.verdict is not Canary.WAITING and run.incident.recovered is None:
            run = _stepped(run, ctx)
            deadline = ctx.clock.now() + ctx.settings.start_timeout_s
        if judgement.verdict is Canary.GOOD:
            ctx.audit("canary", run.incident, attempt=new.number, compared=judgement.compared)
            return run
        now = ctx.clock.now()
        if now - looked >= LOOK_EVERY_S or now >= deadline:
            looked = now
            snapshot = ctx.engine.snapshot(timeout_s=ctx.settings.verb_timeout_s)
            if observe.completed(snapshot, new):
                return run
            found = observe.troubles(snapshot, new)
            if found:
                return _broke(run, found, ctx)
        if now >= deadline:
            return _broke(run, (observe.no_first_step(new, since=began, now=now),), ctx)
        ctx.wait(run.incident.id, POLL_S)


def running(incident: Incident) -> tuple[PlannedAction, ...]:
    """The actions of the present round."""
    return tuple(one for one in incident.actions if one.outcome is Outcome.RUNNING)


def amend(incident: Incident, change: Callable[[PlannedAction], PlannedAction]) -> Incident:
    """Change the actions of the present round."""
    actions = (change(one) if one.outcome is Outcome.RUNNING else one for one in incident.actions)
    return replace(incident, actions=tuple(actions))


def isolated(incident: Incident) -> frozenset[str]:
    return frozenset(
        str(one.action.params["node"]) for one in running(incident) if one.action.kind is ActionKind.ISOLATE_NODE
    )


def skipped_batches(incident: Incident) -> frozenset[int]:
    """Of all rounds: a batch that was skipped once stays skipped."""
    return frozenset(
        int(one.action.params["batch"]) for one in incident.actions if one.action.kind is ActionKind.SKIP_BATCH
    )


def noted(run: Run, note: str) -> Run:
    return replace(run, incident=replace(run.incident, notes=(*run.incident.notes, note[:MAX_NOTE])))


def avoided_nodes(incidents: tuple[Incident, ...], job: str) -> frozenset[str]:
    """Nodes that a slow rank of the job was moved off: not cordoned, but not its first choice until probed."""
    return frozenset(
        str(one.action.params["from"])
        for incident in incidents
        if incident.job == job
        for one in incident.actions
        if one.action.kind is ActionKind.MIGRATE_STATE and one.outcome in {Outcome.SUCCEEDED, Outcome.RUNNING}
    )


def _placements(run: Run, ctx: Context) -> tuple[RankPlacement, ...]:
    timeout_s = ctx.settings.verb_timeout_s
    for one in running(run.incident):
        params = one.action.params
        if one.action.kind is ActionKind.MIGRATE_STATE:
            return ctx.engine.migrate(run.old, int(params["rank"]), str(params["to"]), timeout_s=timeout_s)
        if one.action.kind is ActionKind.RESCALE and params.get("scope") == "shrink":
            return _shrunk(run, ctx, str(params.get("node", "")))
    bad = isolated(run.incident)
    avoided = avoided_nodes(ctx.store.incidents(run.old.job), run.old.job) - set(run.old.nodes)
    if avoided:
        try:
            return ctx.engine.place(run.old, exclude=sorted(bad | avoided), timeout_s=timeout_s)
        except (PlacementError, EngineError):
            ctx.audit("place", run.incident, note=f"no room without the avoided nodes {sorted(avoided)}")
    return ctx.engine.place(run.old, exclude=sorted(bad), timeout_s=timeout_s)


def _shrunk(run: Run, ctx: Context, node: str) -> tuple[RankPlacement, ...]:
    """As many ranks as still have a node of their own."""
    usable = {name for name, status in run.snapshot.nodes.items() if status.reachable and not status.cordoned}
    left = [one for one in run.old.placements if one.node != node and one.node in usable]
    if not left:
        raise PlacementError("no node of the job is left", mend="uncordon or add nodes")
    return ctx.engine.resize(replace(run.old, placements=tuple(left)), len(left), timeout_s=ctx.settings.verb_timeout_s)


def _rediagnosed(run: Run, choice: ResumeChoice, ctx: Context) -> Run:
    incident = run.incident
    now = ctx.clock.now()
    found = observe.damaged_checkpoints(incident.job, choice.damaged, now=now)
    if found:
        incident = replace(incident, anomalies=observe.merged(incident.anomalies, found))
        causes = ctx.diagnose(incident)
        ctx.audit("diagnose", incident, causes=[f"{cause.entity} {cause.fault}" for cause in causes[:3]])
        incident = replace(incident, causes=causes)
    worst = incident.causes[0].entity if found and incident.causes else None
    resume = _plain(choice.point)

    def aimed(one: PlannedAction) -> PlannedAction:
        if one.action.kind is not ActionKind.ROLLBACK_CHECKPOINT:
            return one
        target = str(worst) if worst is not None else one.action.target
        return replace(one, action=_with(replace(one.action, target=target), {"resume": resume}))

    incident = amend(incident, aimed)
    return replace(run, incident=ctx.save(incident))


def _stepped(run: Run, ctx: Context) -> Run:
    """The first good step."""
    progress = ctx.progress.progress(run.old.job)
    at = first_end(progress, _new(run)) if progress is not None else ctx.clock.now()
    return replace(run, incident=ctx.save(replace(run.incident, recovered=at)))


def _broke(run: Run, found: tuple[Anomaly, ...], ctx: Context) -> Run:
    """The new attempt failed: what was seen replaces the evidence of the old one."""
    words = ", ".join(sorted({f"{one.entity} ({one.detector})" for one in found}))
    ctx.audit("broke", run.incident, attempt=_new(run).number, found=words)
    incident = replace(run.incident, attempt=_new(run).number, anomalies=found, recovered=None)
    causes = ctx.diagnose(incident)
    incident = replace(
        run.incident,
        anomalies=observe.merged(run.incident.anomalies, found),
        causes=causes,
        recovered=None,
    )
    return replace(
        run, incident=incident, failure=f"{BROKE_AGAIN}{words}", tried=(*run.tried, *_unloadable(run, found))
    )


def _unloadable(run: Run, found: tuple[Anomaly, ...]) -> tuple[ResumePoint, ...]:
    """The point of an attempt that ended over a checkpoint before its first step: its contents are no good."""
    resume = _new(run).resume
    ended = any(one.evidence.get("reason") == _CHECKPOINT_EXIT for one in found)
    return (resume,) if resume is not None and ended and run.incident.recovered is None else ()


def _new(run: Run) -> Attempt:
    if run.new is None:
        raise EngineError("no new attempt was placed", mend="report this as a bug of the recovery steps")
    return run.new


def _with(action: Action, params: Mapping[str, Any]) -> Action:
    return replace(action, params={**action.params, **params})


def _plain(point: ResumePoint | None) -> dict[str, Any]:
    return {} if point is None else {"step": point.step, "tier": point.tier, "attempt": point.attempt}
