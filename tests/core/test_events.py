"""The values that flow: what they print, compare and start as."""

from __future__ import annotations

import dataclasses
import json

import pytest

from everstep.core.actions import ACTION_MEANING, Action, ActionKind, Outcome, Plan, PlannedAction
from everstep.core.events import (
    OPEN_STATES,
    Anomaly,
    Direction,
    Entity,
    EntityKind,
    Incident,
    IncidentState,
    RootCause,
)

RANK = Entity(kind=EntityKind.RANK, name="demo/1")


def test_an_entity_prints_kind_and_name() -> None:
    assert str(RANK) == "rank demo/1"


def test_entities_are_equal_by_value_and_sort_by_kind_then_name() -> None:
    assert Entity(kind=EntityKind.RANK, name="demo/1") == RANK
    assert len({RANK, Entity(kind=EntityKind.RANK, name="demo/1")}) == 1
    node = Entity(kind=EntityKind.NODE, name="z")
    first = Entity(kind=EntityKind.RANK, name="demo/0")
    assert sorted([RANK, first, node]) == [node, first, RANK]


def test_only_resolved_and_dismissed_incidents_are_closed() -> None:
    assert set(IncidentState) - OPEN_STATES == {IncidentState.RESOLVED, IncidentState.DISMISSED}


def test_an_incident_starts_open_and_empty_and_changes_by_replacement() -> None:
    incident = Incident(id="i-1", job="demo", attempt=1, opened=10.0, onset=9.0)
    assert incident.state is IncidentState.OPEN
    assert (incident.anomalies, incident.causes, incident.actions, incident.plan) == ((), (), (), None)
    closed = dataclasses.replace(incident, state=IncidentState.RESOLVED, closed=20.0)
    assert (incident.closed, closed.closed) == (None, 20.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        incident.state = IncidentState.RESOLVED  # type: ignore[misc]


def test_evidence_is_not_shared_between_anomalies() -> None:
    first, second = (
        Anomaly(
            entity=RANK,
            metric="everstep_worker_state",
            onset_earliest=1.0,
            onset_latest=2.0,
            score=1.0,
            direction=Direction.STOP,
            detector="process",
            observed=1.0,
            expected=0.0,
        )
        for _ in range(2)
    )
    first.evidence["state"] = "killed"
    assert second.evidence == {}


def test_an_incident_becomes_json_with_enums_as_their_words() -> None:
    plan = Plan(reason="r", actions=(Action(kind=ActionKind.SKIP_BATCH, target="batch demo/57"),))
    incident = Incident(
        id="i-1",
        job="demo",
        attempt=1,
        opened=10.0,
        onset=9.0,
        causes=(RootCause(entity=RANK, fault="F25", confidence=0.9),),
        plan=plan,
        actions=(PlannedAction(action=plan.actions[0]),),
    )
    read = json.loads(json.dumps(dataclasses.asdict(incident)))
    assert read["state"] == "open"
    assert read["causes"][0]["entity"] == {"kind": "rank", "name": "demo/1"}
    assert read["actions"][0] == {
        "action": {"kind": "skip_batch", "target": "batch demo/57", "params": {}},
        "outcome": "planned",
        "started": None,
        "ended": None,
        "detail": "",
    }
    assert read["plan"]["needs_approval"] is False


def test_every_action_says_what_it_means() -> None:
    assert set(ACTION_MEANING) == set(ActionKind)
    assert all(meaning and "\n" not in meaning for meaning in ACTION_MEANING.values())


def test_a_planned_action_starts_planned() -> None:
    planned = PlannedAction(action=Action(kind=ActionKind.WATCH, target="job demo"))
    assert (planned.outcome, planned.started, planned.ended) == (Outcome.PLANNED, None, None)
