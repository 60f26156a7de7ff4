"""From root cause to plan, pure: the remedy of the fault table, the ladder of escalation, the guard-rails.

Ladder: restart on the same nodes; the second failure of a rank on the same node isolates the node; what stays goes to a
person. A plan that changes something starts exactly one new attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

from everstep.core.actions import Action, Plan
from everstep.core.events import Incident
from everstep.core.faults import FAULT_BY_ID, UNKNOWN
from everstep.recovery import guardrails
from everstep.recovery.ladder import Case, main_cause
from everstep.recovery.state import ControllerState


def decide(incident: Incident, state: ControllerState) -> Plan:
    """The plan for the first cause. Its last resort is a person; it never raises."""
    cause = main_cause(incident)
    case = Case(incident=incident, state=state, cause=cause, fault=FAULT_BY_ID.get(cause.fault, UNKNOWN))
    refused: list[str] = []
    for actions in case.ladder():
        stopped = case.refusals(actions)
        if not stopped:
            return _plan(case, actions, refused)
        refused += [one for one in stopped if one not in refused]
    return _plan(case, (case.page(),), refused)


def _plan(case: Case, actions: Sequence[Action], refused: Sequence[str]) -> Plan:
    changes = any(action.kind in guardrails.CHANGING for action in actions)
    return Plan(
        reason=f"{case.fault.name} of {case.cause.entity}, confidence {case.cause.confidence:.2f}",
        actions=tuple(actions),
        refused=tuple(refused),
        needs_approval=changes and case.state.settings.approval,
    )
