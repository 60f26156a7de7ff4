"""The rules that keep automation from making things worse: each says in one line why an action must not happen.

Numbers refer to section 4 of the fault library. Pure functions; an empty answer lets the action pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from everstep.core.actions import Action, ActionKind, Outcome, PlannedAction
from everstep.core.engine import ClusterSnapshot
from everstep.core.events import Incident
from everstep.core.faults import Fault
from everstep.core.settings import RecoverySettings

HOUR_S = 3600.0
NETWORK_CONFIRM_S = 300.0
NETWORK_FAULTS = frozenset({"F13", "F14", "F16"})
CHANGING = frozenset(
    {
        ActionKind.RESTART_IN_PLACE,
        ActionKind.RESTART_PROCESS,
        ActionKind.RESTART_APP,
        ActionKind.RESET_GPU,
        ActionKind.ISOLATE_NODE,
        ActionKind.ROLLBACK_CHECKPOINT,
        ActionKind.SKIP_BATCH,
        ActionKind.RESCALE,
        ActionKind.MIGRATE_STATE,
    }
)
STARTING = CHANGING - {ActionKind.ROLLBACK_CHECKPOINT}
"""One of these stands in every plan that starts a new attempt."""
_COUNTED = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.RUNNING})


def done(incidents: Iterable[Incident], *, since: float) -> Iterator[PlannedAction]:
    """Actions that were carried out, or tried, since then."""
    for incident in incidents:
        for one in incident.actions:
            started = one.started if one.started is not None else incident.opened
            if one.outcome in _COUNTED and started >= since:
                yield one


def tries(incidents: Iterable[Incident], action: Action, *, since: float) -> int:
    """How often this action was tried on this target."""
    return sum(
        one.action.kind is action.kind and one.action.target == action.target for one in done(incidents, since=since)
    )


def monitoring_changes_nothing(fault: Fault, action: Action) -> str:
    """Rule 8."""
    return f"{fault.id} is a monitoring fault and changes nothing" if fault.monitoring and _changes(action) else ""


def software_evicts_nobody(fault: Fault, action: Action, *, same_node: int) -> str:
    """Rule 6: unless it happened before to the same rank on the same node, a software fault isolates no node."""
    if action.kind is not ActionKind.ISOLATE_NODE or not fault.software or same_node >= 1:
        return ""
    return f"{fault.id} is a software fault and evicts nobody"


def isolation_cap(
    action: Action, incidents: Iterable[Incident], snapshot: ClusterSnapshot, settings: RecoverySettings, *, now: float
) -> str:
    """Rule 3: so many an hour, and never more than a share of all nodes."""
    if action.kind is not ActionKind.ISOLATE_NODE:
        return ""
    node = str(action.params.get("node", ""))
    recent = {
        str(one.action.params.get("node", ""))
        for one in done(incidents, since=now - HOUR_S)
        if one.action.kind is ActionKind.ISOLATE_NODE
    }
    if node not in recent and len(recent) >= settings.max_cordoned_per_hour:
        return f"{len(recent)} nodes were isolated within an hour, {settings.max_cordoned_per_hour} are allowed"
    cordoned = {name for name, status in snapshot.nodes.items() if status.cordoned} | {node}
    if snapshot.nodes and len(cordoned) > settings.max_cordoned_share * len(snapshot.nodes):
        return (
            f"{len(cordoned)} of {len(snapshot.nodes)} nodes would be isolated,"
            f" a share of {settings.max_cordoned_share:g} is allowed"
        )
    return ""


def network_needs_two(fault: Fault, action: Action, incidents: Iterable[Incident], incident: Incident) -> str:
    """Rule 1: a network fault isolates only when it came twice within 5 minutes on one entity."""
    if fault.id not in NETWORK_FAULTS or action.kind is not ActionKind.ISOLATE_NODE or not incident.causes:
        return ""
    entity = incident.causes[0].entity
    before = any(
        other.causes and other.causes[0].fault == fault.id and other.causes[0].entity == entity
        for other in incidents
        if other.id != incident.id and 0 <= incident.opened - other.opened <= NETWORK_CONFIRM_S
    )
    return "" if before else f"one {fault.name} alone isolates nothing; a second within 5 minutes would"


def same_action_cap(action: Action, incidents: Iterable[Incident], settings: RecoverySettings, *, now: float) -> str:
    """Rule 10: the same action for the same cause only so often without anything new."""
    if action.kind not in STARTING:
        return ""
    count = tries(incidents, action, since=now - HOUR_S)
    if count < settings.max_same_action:
        return ""
    return f"{action.kind} of {action.target} was tried {count} times within an hour"


def restart_breaker(action: Action, incidents: Iterable[Incident], settings: RecoverySettings, *, now: float) -> str:
    """A job that starts again and again needs a person."""
    if action.kind not in STARTING:
        return ""
    count = sum(one.action.kind in STARTING for one in done(incidents, since=now - HOUR_S))
    if count < settings.max_restarts_per_hour:
        return ""
    return f"{count} restarts within an hour, {settings.max_restarts_per_hour} are allowed"


def _changes(action: Action) -> bool:
    return action.kind in CHANGING
