"""Verdicts on their way to Alertmanager: what they say, that they end, that a dead Alertmanager disturbs nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from everstep.core.clock import ManualClock
from everstep.core.events import Entity, EntityKind, Incident, IncidentState, RootCause
from everstep.service.alert_post import MAX_HELD, MAX_TRIES, REFRESH_S, AlertPost

GPU = Entity(kind=EntityKind.GPU, name="node-1/3")
INCIDENT = Incident(
    id="demo-1-abc",
    job="demo",
    attempt=1,
    opened=1000.0,
    onset=999.0,
    diagnosed=1001.0,
    state=IncidentState.DIAGNOSED,
    causes=(RootCause(entity=GPU, fault="F01", confidence=0.873),),
)


class Alertmanager:
    def __init__(self) -> None:
        self.posts: list[list[dict[str, Any]]] = []
        self.down = False

    def __call__(self, alerts: Sequence[dict[str, Any]]) -> None:
        if self.down:
            raise httpx.ConnectError("refused")
        self.posts.append(list(alerts))


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock(1002.0)
        self.alertmanager = Alertmanager()
        self.outcomes: list[str] = []
        self.post = AlertPost(
            self.alertmanager, self.clock, public_url="http://everstep/", on_outcome=self.outcomes.append
        )

    def put(self, **changes: Any) -> None:
        self.post.put(replace(INCIDENT, **changes))
        self.post.turn()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_verdict_carries_cause_and_links(desk: Desk) -> None:
    desk.put()
    (alert,) = desk.alertmanager.posts[0]
    assert alert["labels"] == {
        "alertname": "EverstepIncident",
        "severity": "critical",
        "component": "service",
        "fault": "F01",
        "action": "isolate_node",
        "train_job": "demo",
        "node": "node-1",
    }
    assert alert["annotations"]["cause"] == "F01 gpu_lost: gpu node-1/3"
    assert alert["annotations"]["confidence"] == "0.87"
    assert alert["annotations"]["report_url"] == "http://everstep/api/v1/incidents/demo-1-abc/report"
    assert alert["annotations"]["runbook_url"] == "docs/faults.md#f01-gpu_lost"
    assert (alert["startsAt"], alert["endsAt"]) == ("1970-01-01T00:16:39.000Z", "1970-01-01T00:21:42.000Z")


def test_it_ends_with_the_incident_under_the_labels_of_its_beginning(desk: Desk) -> None:
    desk.put()
    other = (RootCause(entity=GPU, fault="F02", confidence=0.9),)
    desk.put(state=IncidentState.RESOLVED, closed=1007.0, causes=other)
    first, last = desk.alertmanager.posts[0][0], desk.alertmanager.posts[1][0]
    assert last["labels"] == first["labels"]
    assert last["endsAt"] == "1970-01-01T00:16:47.000Z"
    desk.clock.advance(2 * REFRESH_S)
    desk.post.turn()
    assert len(desk.alertmanager.posts) == 2


def test_an_open_one_is_sent_again_before_it_is_forgotten(desk: Desk) -> None:
    desk.put()
    desk.post.turn()
    assert len(desk.alertmanager.posts) == 1
    desk.clock.advance(REFRESH_S)
    desk.post.turn()
    assert len(desk.alertmanager.posts) == 2
    assert desk.outcomes == ["sent", "sent"]


@pytest.mark.parametrize(
    "changes",
    [
        {"diagnosed": None, "causes": (), "state": IncidentState.OPEN},
        {"id": "alert-abc-1", "state": IncidentState.ESCALATED},
        {"state": IncidentState.DISMISSED, "closed": 1003.0},
    ],
)
def test_what_is_nobodys_news_is_not_sent(desk: Desk, changes: dict[str, Any]) -> None:
    desk.put(**changes)
    assert desk.alertmanager.posts == []


def test_an_alertmanager_that_is_down_is_asked_so_often_and_no_more(desk: Desk) -> None:
    desk.alertmanager.down = True
    desk.put()
    for _ in range(20):
        desk.clock.advance(100.0)
        desk.post.turn()
    assert desk.outcomes == ["failed"] * (MAX_TRIES - 1) + ["dropped"]


def test_it_arrives_when_the_alertmanager_is_back(desk: Desk) -> None:
    desk.alertmanager.down = True
    desk.put()
    desk.alertmanager.down = False
    desk.clock.advance(1.0)
    desk.post.turn()
    assert desk.outcomes == ["failed", "sent"]


def test_what_waits_is_bounded(desk: Desk) -> None:
    for number in range(MAX_HELD + 3):
        desk.post.put(replace(INCIDENT, id=f"demo-{number}"))
    assert desk.outcomes == ["dropped"] * 3


def test_the_thread_sends_and_stops(desk: Desk) -> None:
    desk.post.start()
    desk.post.put(INCIDENT)
    desk.post.stop(timeout_s=5)
    assert not desk.post._thread.is_alive()
    assert len(desk.alertmanager.posts) <= 1
