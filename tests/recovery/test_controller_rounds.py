"""Modes and second rounds: dry run, approval, canaries that fail, attempts that die again, engines that fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from everstep.core.actions import ActionKind, Outcome
from everstep.core.engine import ResumePoint
from everstep.core.errors import EngineError
from everstep.core.events import EntityKind, Incident, IncidentState
from everstep.core.settings import JobSettings
from everstep.scheduler.placement import PlacementError
from everstep.simulator import SimTraining

Make = Callable[..., Any]


def actions(incident: Incident) -> list[tuple[str, str, str]]:
    return [(one.action.kind.value, one.action.target, one.outcome.value) for one in incident.actions]


def kinds(incident: Incident) -> list[str]:
    return [one.action.kind.value for one in incident.actions]


def causes(incident: Incident) -> list[tuple[str, str]]:
    return [(str(cause.entity), cause.fault) for cause in incident.causes]


def test_dry_run_decides_and_changes_nothing(make_world: Make) -> None:
    world = make_world(dry_run=True)
    world.cluster.kill_rank("demo", 1)
    before = list(world.cluster.calls)
    incident = world.heal()
    assert incident.state is IncidentState.ESCALATED
    assert {outcome for _, _, outcome in actions(incident)} == {"skipped"}
    assert world.cluster.calls == before
    assert world.attempt.number == 1


@pytest.mark.parametrize("approved", [True, False])
def test_approval_mode_waits_for_a_persons_word(make_world: Make, approved: bool) -> None:
    world = make_world(approval=True)
    world.cluster.kill_rank("demo", 1)
    incident = world.incident()
    said: list[bool] = []

    def pause(seconds: float) -> None:
        world.cluster.advance(seconds)
        if not said:
            assert world.attempt.number == 1
            assert world.store.get(incident.id).plan.needs_approval
            say = world.controller.approve if approved else world.controller.reject
            said.append(say(incident.id))

    attempt = world.attempt
    world.controller = world.new_controller(pause=pause)
    world.controller.adopt(attempt)
    result = world.controller.handle(incident)
    assert said == [True]
    assert result.state is (IncidentState.RESOLVED if approved else IncidentState.DISMISSED)
    assert {outcome for _, _, outcome in actions(result)} == {"succeeded" if approved else "refused"}
    assert world.attempt.number == (2 if approved else 1)
    assert not world.controller.approve(incident.id)


def test_approval_that_never_comes_escalates(make_world: Make) -> None:
    world = make_world(approval=True)
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.ESCALATED
    assert {outcome for _, _, outcome in actions(incident)} == {"refused"}


def test_a_watched_incident_needs_no_approval(make_world: Make) -> None:
    world = make_world(approval=True)
    assert world.heal(world.anomaly(EntityKind.NODE, "node-1", "frozen")).state is IncidentState.DISMISSED


def test_steps_that_differ_from_before_are_rolled_back_further(world: Any) -> None:
    world.cluster.job("demo").bad_states.add(ResumePoint(step=25, tier="memory", attempt=1))
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert [outcome for _, _, outcome in actions(incident)] == ["failed", "failed", "succeeded", "succeeded"]
    assert any("the loss of step 26" in note for note in incident.notes)
    assert world.attempt.resume == ResumePoint(step=20, tier="memory", attempt=1)
    assert world.attempt.number == 3
    assert world.nodes == ["node-0", "node-1", "node-2"]


def test_a_copy_that_verifies_but_cannot_be_loaded_is_not_chosen_again(world: Any) -> None:
    job = world.cluster.job("demo")
    job.unloadable |= {ResumePoint(step=25, tier=tier, attempt=1) for tier in ("memory", "disk")}
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert world.attempt.resume == ResumePoint(step=20, tier="memory", attempt=1)
    assert world.attempt.number == 3


def test_an_attempt_that_dies_again_is_diagnosed_afresh_in_the_same_incident(world: Any) -> None:
    world.cluster.kill_rank("demo", 1)
    incident = world.incident()
    killed: list[str] = []

    def pause(seconds: float) -> None:
        world.cluster.advance(seconds)
        if not killed and len(world.cluster.starts) == 2:
            killed.append("node-2")
            world.cluster.kill_node("node-2")
            world.controller.evidence(incident.id, world.seen())

    attempt = world.attempt
    world.controller = world.new_controller(pause=pause)
    world.controller.adopt(attempt)
    result = world.controller.handle(incident)
    assert result.state is IncidentState.RESOLVED
    assert kinds(result) == ["restart_process", "rollback_checkpoint", "isolate_node", "rollback_checkpoint"]
    assert causes(result)[0] == ("node node-2", "F18")
    assert world.nodes == ["node-0", "node-1", "node-3"]
    assert result.attempt == 1
    assert world.attempt.number == 3


def test_without_evidence_the_controller_looks_for_itself(world: Any) -> None:
    world.cluster.kill_rank("demo", 1)
    killed: list[int] = []

    def pause(seconds: float) -> None:
        world.cluster.advance(seconds)
        if not killed and len(world.cluster.starts) == 2:
            killed.append(0)
            world.cluster.kill_rank("demo", 0)

    attempt = world.attempt
    world.controller = world.new_controller(pause=pause)
    world.controller.adopt(attempt)
    result = world.heal()
    assert result.state is IncidentState.RESOLVED
    assert causes(result)[0] == ("rank demo/0", "SOFTWARE")
    assert world.attempt.number == 3


def test_evidence_about_other_nodes_and_slow_ranks_does_not_disturb(world: Any) -> None:
    world.cluster.kill_rank("demo", 1)
    incident = world.incident()

    def pause(seconds: float) -> None:
        world.cluster.advance(seconds)
        noise = (world.slow(0), world.anomaly(EntityKind.NODE, "node-3", "liveness", probe="refused", silent_s=3.0))
        world.controller.evidence(incident.id, noise)

    attempt = world.attempt
    world.controller = world.new_controller(pause=pause)
    world.controller.adopt(attempt)
    assert world.controller.handle(incident).state is IncidentState.RESOLVED
    assert world.attempt.number == 2


def test_late_evidence_is_audited_and_not_kept(world: Any) -> None:
    world.controller.evidence("nobody", (world.slow(1),))
    assert world.audited("late_evidence") == [{"incident": "nobody", "count": 1}]


def test_a_start_without_a_first_step_ends_at_its_deadline(make_world: Make) -> None:
    world = make_world(start_timeout_s=5.0)
    world.cluster.job("demo").training = replace(world.cluster.job("demo").training, start_s=1e6)
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.ESCALATED
    assert causes(incident)[0] == ("job demo", "F26")
    assert kinds(incident)[-1] == "page_human"
    assert len(world.cluster.starts) <= 4


def test_a_node_that_starts_nothing_leads_to_a_person_not_to_a_loop(world: Any) -> None:
    world.cluster.refuse_starts("node-1", "no standby")
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state in {IncidentState.RESOLVED, IncidentState.ESCALATED}
    assert any("no standby" in note for note in incident.notes)
    assert len(incident.actions) < 14


def test_a_node_that_dies_before_the_start_is_replaced_in_the_next_round(world: Any) -> None:
    world.cluster.kill_rank("demo", 1)
    incident = world.incident()
    real = world.cluster.checkpoints

    def checkpoints(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        if world.cluster.snapshot(timeout_s=1).nodes["node-2"].reachable:
            world.cluster.kill_node("node-2")
        return found

    world.cluster.checkpoints = checkpoints
    result = world.controller.handle(incident)
    assert result.state is IncidentState.RESOLVED
    assert world.nodes == ["node-0", "node-1", "node-3"]


def test_a_job_that_ends_during_the_canary_is_well(make_world: Make) -> None:
    world = make_world(training=SimTraining(total_steps=30, memory_every=29, disk_every=1000))
    world.cluster.advance(0.1)
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert world.cluster.job("demo").step == 30


def test_an_engine_that_fails_altogether_escalates_with_its_words(world: Any) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise EngineError("scheduler is gone", mend="start it")

    world.cluster.stop = broken
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.ESCALATED
    assert incident.notes[-1] == "the cluster engine failed: scheduler is gone; start it"
    assert {one.outcome for one in incident.actions} == {Outcome.FAILED}


def test_stacks_that_cannot_be_had_do_not_stop_the_recovery(world: Any) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise EngineError("no py-spy", mend="install it")

    world.cluster.dump_stacks = broken
    world.cluster.stop_rank("demo", 1)
    assert world.heal(world.stopped(1)).state is IncidentState.RESOLVED


def test_the_breaker_stops_a_job_that_starts_again_and_again(make_world: Make) -> None:
    world = make_world(max_restarts_per_hour=2)
    for rank in (0, 1):
        world.cluster.kill_rank("demo", rank)
        assert world.heal().state is IncidentState.RESOLVED
        world.cluster.advance(2.0)
    world.cluster.kill_rank("demo", 2)
    incident = world.heal()
    assert (incident.state, kinds(incident)) == (IncidentState.ESCALATED, ["page_human"])
    assert incident.plan is not None
    assert incident.plan.refused == ("2 restarts within an hour, 2 are allowed",)


def test_every_decision_is_audited_with_its_inputs(world: Any) -> None:
    world.cluster.kill_node("node-1")
    world.heal()
    (decision,) = world.audited("decide")
    assert decision["cause"] == "node node-1 F18"
    assert decision["unreachable"] == ["node-1"]
    assert decision["actions"] == ["isolate_node node node-1", "rollback_checkpoint job demo"]
    order = [what for _, what, _ in world.store.audit_trail()]
    assert order == ["launch", "decide", "stop", "cordon", "place", "checkpoints", "start", "canary", "resolved"]


def test_every_change_is_saved_before_it_is_told(world: Any) -> None:
    world.cluster.kill_rank("demo", 1)
    world.heal()
    states = [incident.state for incident in world.told]
    assert states == sorted(states, key=list(IncidentState).index)
    assert states[-1] is IncidentState.RESOLVED
    assert world.store.get(world.told[-1].id) == world.told[-1]


def test_launch_numbers_attempts_and_refuses_what_does_not_fit(world: Any) -> None:
    assert world.attempt.number == 1
    again = world.new_controller()
    assert again.current("demo") is None
    assert again.launch(JobSettings(name="demo", world_size=3)).number == 2
    with pytest.raises(PlacementError, match="9 ranks do not fit"):
        world.controller.launch(JobSettings(name="big", world_size=9))
    assert world.controller.current("big") is None


def test_a_launch_that_fails_leaves_no_current_attempt(world: Any) -> None:
    world.cluster.refuse_starts("node-0", "no standby")
    controller = world.new_controller()
    with pytest.raises(EngineError, match="attempt 2 of demo: node-0: no standby"):
        controller.launch(JobSettings(name="demo", world_size=3))
    assert controller.current("demo") is None


def test_an_incident_of_an_unknown_job_is_escalated(world: Any) -> None:
    incident = replace(world.incident(world.slow(1)), job="nobody")
    result = world.controller.handle(incident)
    assert result.state is IncidentState.ESCALATED
    assert "has no attempt; launch it first" in result.notes[-1]


def test_evidence_may_come_from_many_threads(world: Any) -> None:
    world.cluster.kill_rank("demo", 1)
    incident = world.incident()
    noise = world.slow(0)
    quit_ = threading.Event()

    def talk() -> None:
        while not quit_.is_set():
            world.controller.evidence(incident.id, (noise,))
            quit_.wait(0.0005)

    talkers = [threading.Thread(target=talk) for _ in range(4)]
    for talker in talkers:
        talker.start()
    try:
        result = world.controller.handle(incident)
    finally:
        quit_.set()
        for talker in talkers:
            talker.join(5)
    assert result.state is IncidentState.RESOLVED
    assert ActionKind.RESTART_PROCESS in {one.action.kind for one in result.actions}
