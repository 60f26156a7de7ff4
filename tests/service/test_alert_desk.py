"""Alerts of Prometheus' rules: which act, which only tell, and that none acts twice for one breakage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from everstep.core.clock import ManualClock
from everstep.core.events import Direction, Entity, EntityKind, Incident, IncidentState, RootCause
from everstep.service.alert_desk import ECHO_S, NO_JOB, STORM_PER_MINUTE, AlertDesk, Received
from everstep.service.notices import Notice

World = Any
SERIAL = iter(range(10**6))


def notice(clock: ManualClock, *, firing: bool = True, key: str = "", **labels: str) -> Notice:
    given = {"alertname": "GpuMissing", "severity": "critical", "fault": "F01", "action": "isolate_node", **labels}
    fingerprint = key or f"f{next(SERIAL)}"
    started = clock.now() if not key else 1_000_001.0
    return Notice(
        key=("group", fingerprint, str(started), "firing" if firing else "resolved"),
        firing=firing,
        labels=given,
        annotations={"summary": "a GPU is gone"},
        starts_at=started,
        fingerprint=fingerprint,
    )


@pytest.fixture
def desk(world: World) -> AlertDesk:
    return AlertDesk(world.store, world.monitor, world.clock)


def test_a_lost_gpu_of_a_running_job_reaches_the_controller_with_its_fault(world: World, desk: AlertDesk) -> None:
    world.launch()
    world.run(10)
    assert desk.take(notice(world.clock, node="node-1")) is Received.REPORTED
    world.run(1)
    (handled,) = world.controller.handled
    (anomaly,) = handled.anomalies
    assert anomaly.detector == "alert"
    assert (anomaly.entity.kind, anomaly.entity.name) == (EntityKind.NODE, "node-1")
    assert anomaly.evidence["fault"] == "F01"
    assert anomaly.evidence["alert"] == "GpuMissing"
    assert handled.job == "demo"


def test_repeats_and_our_own_verdicts_count_and_do_nothing(world: World, desk: AlertDesk) -> None:
    world.launch()
    world.run(5)
    first = notice(world.clock, node="node-1")
    assert desk.take(first) is Received.REPORTED
    assert desk.take(first) is Received.DUPLICATE
    assert desk.take(notice(world.clock, alertname="EverstepIncident", node="node-1")) is Received.OWN
    assert desk.take(notice(world.clock, alertname="Watchdog", fault="none")) is Received.IGNORED
    world.run(1)
    assert len(world.controller.handled) == 1


@pytest.mark.parametrize(
    "labels",
    [
        {"fault": "F07", "action": "page_human", "node": "node-1"},
        {"fault": "F31", "action": "fix_service", "node": "node-1"},
        {"node": "node-9"},
        {"train_job": "stranger"},
    ],
)
def test_what_must_not_act_is_told_and_nothing_is_carried_out(
    world: World, desk: AlertDesk, labels: dict[str, str]
) -> None:
    world.launch()
    world.run(5)
    assert desk.take(notice(world.clock, **labels)) is Received.TOLD
    world.run(1)
    assert world.controller.handled == []
    (told,) = world.store.incidents()
    assert told.state is IncidentState.ESCALATED
    assert told.causes[0].fault == labels.get("fault", "F01")
    assert told.actions == ()
    assert told.job == ("demo" if labels.get("node") == "node-1" else NO_JOB)


def test_a_told_incident_ends_with_its_alert(world: World, desk: AlertDesk) -> None:
    desk.take(notice(world.clock, key="abc"))
    assert desk.take(notice(world.clock, key="abc", firing=False)) is Received.RESOLVED
    (told,) = world.store.incidents()
    assert told.state is IncidentState.RESOLVED
    assert told.closed == world.clock.now()


def test_a_restart_of_the_service_does_not_tell_again(world: World, desk: AlertDesk) -> None:
    assert desk.take(notice(world.clock, key="abc")) is Received.TOLD
    again = AlertDesk(world.store, world.monitor, world.clock)
    assert again.take(notice(world.clock, key="abc")) is Received.DUPLICATE
    assert len(world.store.incidents()) == 1


def test_a_warning_is_listed_only(world: World, desk: AlertDesk) -> None:
    assert desk.take(notice(world.clock, severity="warning", node="node-1")) is Received.WATCHED
    assert [anomaly.detector for anomaly in world.anomalies] == ["alert"]
    assert world.store.incidents() == ()


def test_the_echo_of_a_recovery_starts_no_other(world: World, desk: AlertDesk) -> None:
    world.launch()
    world.run(5)
    desk.take(notice(world.clock, node="node-1"))
    world.run(1)
    (done,) = world.controller.handled
    closed = replace(done, state=IncidentState.RESOLVED, closed=world.clock.now())
    world.store.save(replace(closed, causes=(replace(done.causes[0], fault="F01"),)))
    assert desk.take(notice(world.clock, node="node-1")) is Received.ECHO
    assert desk.take(notice(world.clock, node="node-1", fault="F02")) is Received.REPORTED
    world.clock.advance(ECHO_S + 1)
    assert desk.take(notice(world.clock, node="node-1")) is Received.REPORTED


def test_an_alert_from_before_the_attempt_is_for_a_person(world: World, desk: AlertDesk) -> None:
    old = notice(world.clock, node="node-1")
    world.clock.advance(60)
    world.slot = 600
    world.launch()
    world.run(5)
    assert desk.take(old) is Received.TOLD
    assert world.controller.handled == []


def test_alerts_during_a_recovery_do_not_count_against_it(world: World, desk: AlertDesk) -> None:
    world.launch()
    world.run(5)
    world.monitor._jobs[0].case.take_up(Incident(id="i", job="demo", attempt=1, opened=1.0, onset=1.0))
    desk.take(notice(world.clock, node="node-1"))
    world.run(1)
    assert world.controller.told == []
    assert world.controller.handled == []


def test_a_storm_is_cut_off(world: World, desk: AlertDesk) -> None:
    outcomes = [desk.take(notice(world.clock, node=f"other-{number}")) for number in range(STORM_PER_MINUTE + 5)]
    assert outcomes.count(Received.TOLD) == STORM_PER_MINUTE
    assert outcomes.count(Received.STORM) == 5


def test_a_rank_is_named_after_its_job(world: World, desk: AlertDesk) -> None:
    desk.take(notice(world.clock, fault="F28", severity="warning", train_job="demo", rank="2"))
    (anomaly,) = world.anomalies
    assert anomaly.entity.name == "demo/2"
    assert anomaly.direction in set(Direction)


def test_alerts_of_a_node_that_a_recovery_has_left_are_its_echo(world: World, desk: AlertDesk) -> None:
    """The live path has isolated node-1 for its lost GPU; the rules find the same GPU silent a moment later."""
    world.launch(2, ("node-0", "node-3", "node-2"))
    gpu = Entity(kind=EntityKind.GPU, name="node-1/0")
    now = world.clock.now()
    world.store.save(
        Incident(
            id="demo-1-a",
            job="demo",
            attempt=1,
            opened=now,
            onset=now,
            state=IncidentState.RESOLVED,
            closed=now,
            causes=(RootCause(entity=gpu, fault="F01", confidence=0.9),),
        )
    )
    silent = {"alertname": "GpuDown", "action": "page_human", "gpu": "0"}
    assert desk.take(notice(world.clock, node="node-1", **silent)) is Received.ECHO
    assert desk.take(notice(world.clock, node="node-9", **silent)) is Received.TOLD
    assert desk.take(notice(world.clock, node="node-1", fault="F06", alertname="GpuRowRemapFailure")) is Received.TOLD
    world.clock.advance(ECHO_S + 1)
    assert desk.take(notice(world.clock, node="node-1", **silent)) is Received.TOLD
