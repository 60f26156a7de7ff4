"""Which remedies a cause allows, gentlest first, and which guard-rail stops each; pure.

A rung is a complete plan: one action that starts a new attempt, with the rollback that belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from everstep.core.actions import Action, ActionKind
from everstep.core.events import Entity, EntityKind, Incident, RootCause
from everstep.core.faults import FAULT_BY_ID, UNKNOWN, Fault
from everstep.recovery import guardrails
from everstep.recovery.state import ControllerState
from everstep.scheduler.hosts import usable_hosts
from everstep.scheduler.placement import PlacementError, replace_nodes, target_for

Rung = tuple[Action, ...]
RESTARTS = frozenset({ActionKind.RESTART_PROCESS, ActionKind.RESTART_APP, ActionKind.RESTART_IN_PLACE})
SHARED = frozenset({EntityKind.RACK, EntityKind.LEAF, EntityKind.SPINE, EntityKind.PLANE, EntityKind.RAIL})
HANG = "F25"
CORRUPT = "F23"
BROKE_AGAIN = "the new attempt broke: "
"""How the detail of an action begins whose attempt died, in contrast to one whose first steps were wrong."""


def main_cause(incident: Incident) -> RootCause:
    """The first cause; UNKNOWN when nobody named one."""
    return incident.causes[0] if incident.causes else _unknown(incident)


def stopping_cause(incident: Incident) -> RootCause:
    """The cause that stopped the job, also where a damaged checkpoint stands first."""
    named = (cause for cause in incident.causes if cause.fault not in {CORRUPT, UNKNOWN.id})
    return next(named, main_cause(incident))


def _unknown(incident: Incident) -> RootCause:
    return RootCause(entity=Entity(kind=EntityKind.JOB, name=incident.job), fault=UNKNOWN.id, confidence=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    incident: Incident
    state: ControllerState
    cause: RootCause
    fault: Fault

    def ladder(self) -> list[Rung]:
        """Rungs in the order in which they are tried; a person comes after the last."""
        first = self.fault.default_actions[0]
        if self.fault.monitoring:
            first = ActionKind.WATCH
        if self.fault.id == CORRUPT:
            return self._after_corruption()
        if self.cause.entity.kind in SHARED:
            return self._shared_rungs()
        rungs = _RUNGS.get(first)
        return rungs(self) if rungs is not None else []

    def refusals(self, actions: Sequence[Action]) -> list[str]:
        """Every guard-rail that stops one of the actions."""
        if self.fault.id == CORRUPT and stopping_cause(self.incident).fault != CORRUPT:
            return self._stopping().refusals(actions)
        history = (*self.state.history, self.incident)
        of_job = [one for one in history if one.job == self.incident.job]
        settings, now = self.state.settings, self.state.now
        answers = [
            answer
            for action in actions
            for answer in (
                guardrails.monitoring_changes_nothing(self.fault, action),
                guardrails.software_evicts_nobody(self.fault, action, same_node=self._failed_on_same_node()),
                guardrails.network_needs_two(self.fault, action, history, self.incident),
                guardrails.isolation_cap(action, history, self.state.snapshot, settings, now=now),
                guardrails.same_action_cap(action, of_job, settings, now=now),
                guardrails.restart_breaker(action, of_job, settings, now=now),
                self._no_room(action),
            )
        ]
        return [answer for answer in answers if answer]

    def page(self) -> Action:
        return Action(kind=ActionKind.PAGE_HUMAN, target=f"job {self.incident.job}")

    def watch_rungs(self) -> list[Rung]:
        return [(self._action(ActionKind.WATCH, self.cause.entity),)]

    def service_rungs(self) -> list[Rung]:
        return [(self._action(ActionKind.FIX_SERVICE, self.cause.entity), self.page())]

    def _shared_rungs(self) -> list[Rung]:
        """Move off what nodes share when it took some of them away; otherwise it is a person's."""
        placements = self.state.attempt.placements if self.state.attempt is not None else ()
        known = self.state.snapshot.nodes
        if all(known[one.node].reachable for one in placements if one.node in known):
            return []
        return [(self._action(ActionKind.RESCALE, self.cause.entity, scope="move"), self._rollback(), self.page())]

    def restart_rungs(self) -> list[Rung]:
        node = self._node()
        params: dict[str, str | int] = {"node": node} if node else {}
        if self.fault.id == HANG:
            params["stacks"] = "dump"
        restart = self._action(ActionKind.RESTART_PROCESS, self.cause.entity, **params)
        rungs: list[Rung] = [(restart, self._rollback())]
        if node and self.fault.software and self._failed_on_same_node():
            rungs.insert(0, (self._isolate(node), self._rollback()))
        return rungs

    def _after_corruption(self) -> list[Rung]:
        """What the process death asks for, from an older copy; a damaged checkpoint alone asks for a restart."""
        stopped = stopping_cause(self.incident)
        if stopped.fault == CORRUPT:
            restart = self._action(ActionKind.RESTART_PROCESS, Entity(kind=EntityKind.JOB, name=self.incident.job))
            return [(restart, self._rollback())]
        return [
            (*[one for one in rung if one.kind is not ActionKind.ROLLBACK_CHECKPOINT], self._rollback())
            for rung in self._stopping().ladder()
        ]

    def _stopping(self) -> Case:
        cause = stopping_cause(self.incident)
        return replace(self, cause=cause, fault=FAULT_BY_ID.get(cause.fault, UNKNOWN))

    def skip_rungs(self) -> list[Rung]:
        batch = _number(self.cause.entity.name.rpartition("/")[2])
        if self.cause.entity.kind is not EntityKind.BATCH or batch is None:
            restart = self._action(ActionKind.RESTART_PROCESS, self.cause.entity)
            return [(restart, self._rollback())]
        return [(self._action(ActionKind.SKIP_BATCH, self.cause.entity, batch=batch), self._rollback())]

    def migrate_rungs(self) -> list[Rung]:
        node, rank, attempt = self._node(), _number(self.cause.entity.name.rpartition("/")[2]), self.state.attempt
        if self.cause.entity.kind is not EntityKind.RANK or not node or rank is None or attempt is None:
            return [(self._action(ActionKind.WATCH, self.cause.entity), self.page())]
        hosts = usable_hosts(self.state.snapshot, self.state.topology, job=self.incident.job, exclude=(node,))
        try:
            target = target_for(attempt.placements, rank, hosts)
        except PlacementError:
            return []
        params = {"rank": rank, "from": node, "to": target}
        return [(Action(kind=ActionKind.MIGRATE_STATE, target=str(self.cause.entity), params=params),)]

    def evict_rungs(self) -> list[Rung]:
        node = self._node()
        if not node:
            return []
        rollback = self._rollback()
        if self.fault.id == "F30":
            rollback = Action(kind=rollback.kind, target=rollback.target, params=self._before_onset())
        rungs: list[Rung] = [(self._isolate(node), rollback)]
        if self.state.settings.allow_rescale:
            shrink = self._action(ActionKind.RESCALE, self.cause.entity, scope="shrink", node=node)
            rungs.append((shrink, rollback))
        return rungs

    def _before_onset(self) -> dict[str, int]:
        steps = [one.evidence.get("step") for one in self.incident.anomalies if one.detector == "nonfinite"]
        known = [step for step in steps if isinstance(step, int)]
        return {"before_step": min(known)} if known else {}

    def _isolate(self, node: str) -> Action:
        return Action(kind=ActionKind.ISOLATE_NODE, target=f"node {node}", params={"node": node})

    def _rollback(self) -> Action:
        target = self.cause.entity if self.fault.id == CORRUPT else Entity(kind=EntityKind.JOB, name=self.incident.job)
        return self._action(ActionKind.ROLLBACK_CHECKPOINT, target)

    def _action(self, kind: ActionKind, entity: Entity, **params: str | int) -> Action:
        return Action(kind=kind, target=str(entity), params=dict(params))

    def _node(self) -> str:
        """The node of the culprit, empty when it has none or nobody knows it."""
        entity = self.cause.entity
        if entity.kind is EntityKind.NODE:
            return entity.name
        placements = self.state.attempt.placements if self.state.attempt is not None else ()
        if entity.kind in {EntityKind.RANK, EntityKind.PROCESS}:
            rank = _number(entity.name.rpartition("/")[2])
            return next((placement.node for placement in placements if placement.rank == rank), "")
        named = entity.name.partition("/")[0]  # GPUs and NICs are named after their node
        return named if named in self.state.snapshot.nodes else ""

    def _failed_on_same_node(self) -> int:
        """Earlier failures of the culprit on the node where it runs now; none when it also failed elsewhere."""
        node = self._node()
        if not node:
            return 0
        since = self.state.now - guardrails.HOUR_S
        of_job = [one for one in self.state.history if one.job == self.incident.job]
        earlier = [*guardrails.done(of_job, since=since)]
        earlier += [one for one in guardrails.done([self.incident], since=since) if one.detail.startswith(BROKE_AGAIN)]
        nodes = [
            str(one.action.params.get("node", ""))
            for one in earlier
            if one.action.kind in RESTARTS and one.action.target == str(self.cause.entity)
        ]
        return 0 if any(other != node for other in nodes) else len(nodes)

    def _no_room(self, action: Action) -> str:
        """Why the ranks of a node cannot move."""
        attempt = self.state.attempt
        if action.kind not in {ActionKind.ISOLATE_NODE, ActionKind.RESCALE} or attempt is None:
            return ""
        node = str(action.params.get("node", ""))
        hosts = usable_hosts(self.state.snapshot, self.state.topology, job=self.incident.job, exclude=(node,))
        if action.params.get("scope") == "shrink":
            return "" if len(hosts) >= 1 and attempt.world_size > 1 else "no node is left to go on with"
        try:
            replace_nodes(attempt.placements, {node}, hosts)
        except PlacementError as error:
            return error.problem
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


_RUNGS: dict[ActionKind, Callable[[Case], list[Rung]]] = {
    ActionKind.WATCH: Case.watch_rungs,
    ActionKind.FIX_SERVICE: Case.service_rungs,
    ActionKind.RESTART_IN_PLACE: Case.restart_rungs,
    ActionKind.RESTART_PROCESS: Case.restart_rungs,
    ActionKind.RESTART_APP: Case.restart_rungs,
    ActionKind.SKIP_BATCH: Case.skip_rungs,
    ActionKind.MIGRATE_STATE: Case.migrate_rungs,
    ActionKind.ISOLATE_NODE: Case.evict_rungs,
    ActionKind.RESET_GPU: Case.evict_rungs,
}
"""How the first default action of a fault begins its ladder; kinds that are absent go to a person at once."""
