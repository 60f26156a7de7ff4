"""Each guard-rail by itself: what passes, what does not, and the words."""

from __future__ import annotations

from everstep.core.actions import Action, ActionKind
from everstep.core.faults import FAULT_BY_ID
from everstep.recovery.guardrails import CHANGING, STARTING, monitoring_changes_nothing, software_evicts_nobody

ISOLATE = Action(kind=ActionKind.ISOLATE_NODE, target="node a", params={"node": "a"})


def test_monitoring_changes_nothing() -> None:
    fault = FAULT_BY_ID["F31"]
    for kind in ActionKind:
        answer = monitoring_changes_nothing(fault, Action(kind=kind, target="x"))
        assert bool(answer) == (kind in CHANGING)
    assert monitoring_changes_nothing(FAULT_BY_ID["F18"], ISOLATE) == ""


def test_software_evicts_nobody_at_first() -> None:
    assert software_evicts_nobody(FAULT_BY_ID["SOFTWARE"], ISOLATE, same_node=0) == (
        "SOFTWARE is a software fault and evicts nobody"
    )
    assert software_evicts_nobody(FAULT_BY_ID["SOFTWARE"], ISOLATE, same_node=1) == ""
    assert software_evicts_nobody(FAULT_BY_ID["F18"], ISOLATE, same_node=0) == ""
    restart = Action(kind=ActionKind.RESTART_PROCESS, target="x")
    assert software_evicts_nobody(FAULT_BY_ID["SOFTWARE"], restart, same_node=0) == ""


def test_a_rollback_starts_nothing_by_itself() -> None:
    assert {ActionKind.ROLLBACK_CHECKPOINT} == CHANGING - STARTING
    assert ActionKind.PAGE_HUMAN not in CHANGING
    assert ActionKind.WATCH not in CHANGING
