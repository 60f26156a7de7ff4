"""Every path of the policy on the simulated cluster, from the broken attempt to the verified one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.core.engine import ResumePoint, WorkerState
from everstep.core.events import EntityKind, Incident, IncidentState
from everstep.simulator import SimTraining

Make = Callable[..., Any]


def actions(incident: Incident) -> list[tuple[str, str, str]]:
    return [(one.action.kind.value, one.action.target, one.outcome.value) for one in incident.actions]


def kinds(incident: Incident) -> list[str]:
    return [one.action.kind.value for one in incident.actions]


def causes(incident: Incident) -> list[tuple[str, str]]:
    return [(str(cause.entity), cause.fault) for cause in incident.causes]


def test_a_killed_process_is_restarted_in_place(world: Any) -> None:
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert causes(incident)[0] == ("rank demo/1", "SOFTWARE")
    assert actions(incident) == [
        ("restart_process", "rank demo/1", "succeeded"),
        ("rollback_checkpoint", "job demo", "succeeded"),
    ]
    assert world.nodes == ["node-0", "node-1", "node-2"]
    assert world.attempt.resume == ResumePoint(step=25, tier="memory", attempt=1)
    assert incident.recovered is not None
    assert incident.closed is not None
    assert incident.opened < incident.recovered < incident.closed
    assert incident.recovered == world.cluster.progress("demo").ends[26]
    assert not any(node.cordoned for node in world.cluster.snapshot(timeout_s=1).nodes.values())


def test_a_hang_leaves_its_stacks_before_the_restart(world: Any) -> None:
    world.cluster.stop_rank("demo", 1)
    incident = world.heal(world.stopped(1))
    assert incident.state is IncidentState.RESOLVED
    assert causes(incident)[0] == ("rank demo/1", "F25")
    assert kinds(incident) == ["restart_process", "rollback_checkpoint"]
    assert world.audited("stacks")[0]["stacks"]["1"] == "rank 1: train_step"
    order = [what for _, what, _ in world.store.audit_trail()]
    assert order.index("stacks") < order.index("stop") < order.index("checkpoints") < order.index("start")


def test_only_hangs_cost_a_stack_dump(world: Any) -> None:
    world.cluster.kill_rank("demo", 1)
    world.heal()
    assert world.audited("stacks") == []


def test_a_dead_node_is_cordoned_and_replaced_by_the_spare(world: Any) -> None:
    world.cluster.kill_node("node-1")
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert causes(incident)[0] == ("node node-1", "F18")
    assert actions(incident) == [
        ("isolate_node", "node node-1", "succeeded"),
        ("rollback_checkpoint", "job demo", "succeeded"),
    ]
    assert world.nodes == ["node-0", "node-3", "node-2"]
    assert world.attempt.resume == ResumePoint(step=25, tier="memory", attempt=1)
    assert world.cluster.snapshot(timeout_s=1).nodes["node-1"].cordoned


def test_a_poisoned_batch_is_skipped_and_nobody_is_isolated(world: Any) -> None:
    world.cluster.poison("demo", 32)
    world.cluster.advance(1.0)
    incident = world.heal(world.nonfinite(32))
    assert incident.state is IncidentState.RESOLVED
    assert causes(incident)[0] == ("batch demo/32", "F28")
    assert kinds(incident) == ["skip_batch", "rollback_checkpoint"]
    assert world.attempt.skip_batches == (32,)
    assert world.nodes == ["node-0", "node-1", "node-2"]
    world.cluster.advance(1.0)
    assert 32 not in world.cluster.progress("demo").batches.values()


def test_a_batch_that_was_skipped_stays_skipped(world: Any) -> None:
    world.cluster.poison("demo", 32)
    world.cluster.advance(1.0)
    world.heal(world.nonfinite(32))
    world.cluster.advance(1.0)
    world.cluster.kill_rank("demo", 0)
    world.heal()
    assert world.attempt.skip_batches == (32,)


def test_a_slow_rank_moves_to_the_spare_and_nobody_else(world: Any) -> None:
    incident = world.heal(world.slow(1))
    assert incident.state is IncidentState.RESOLVED
    assert actions(incident) == [("migrate_state", "rank demo/1", "succeeded")]
    assert world.nodes == ["node-0", "node-3", "node-2"]
    assert not world.cluster.snapshot(timeout_s=1).nodes["node-1"].cordoned


def test_a_node_that_was_slow_is_avoided_while_there_is_another(make_world: Make) -> None:
    world = make_world(spares=2)
    world.heal(world.slow(1))
    assert world.nodes == ["node-0", "node-3", "node-2"]
    world.cluster.advance(2.0)
    world.cluster.kill_node("node-2")
    world.heal()
    assert world.nodes == ["node-0", "node-3", "node-4"]


def test_a_node_that_was_slow_is_better_than_none(world: Any) -> None:
    world.heal(world.slow(1))
    world.cluster.advance(2.0)
    world.cluster.kill_node("node-2")
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert world.nodes == ["node-0", "node-3", "node-1"]


def test_a_damaged_checkpoint_is_the_first_cause_and_the_previous_copy_is_used(world: Any) -> None:
    for step in (20, 25):
        world.cluster.corrupt("demo", step)
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert causes(incident)[:2] == [("checkpoint demo/step-25", "F23"), ("rank demo/1", "SOFTWARE")]
    assert actions(incident) == [
        ("restart_process", "rank demo/1", "succeeded"),
        ("rollback_checkpoint", "checkpoint demo/step-25", "succeeded"),
    ]
    assert world.attempt.resume == ResumePoint(step=10, tier="disk", attempt=1)
    assert [one["step"] for one in world.audited("checkpoints")[0]["skipped"]] == [25, 20, 20]


def test_damage_that_costs_nothing_is_not_blamed(world: Any) -> None:
    world.cluster.corrupt("demo", 20)
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert causes(incident)[0] == ("rank demo/1", "SOFTWARE")
    assert world.attempt.resume == ResumePoint(step=25, tier="memory", attempt=1)


def test_damage_behind_an_earlier_rollback_is_not_blamed_again(world: Any) -> None:
    for step in (20, 25):
        world.cluster.corrupt("demo", step)
    world.cluster.kill_rank("demo", 1)
    world.heal()
    world.cluster.kill_rank("demo", 0)
    incident = world.heal()
    assert causes(incident)[0] == ("rank demo/0", "SOFTWARE")
    assert world.attempt.resume == ResumePoint(step=10, tier="disk", attempt=1)


def test_a_dead_node_with_a_damaged_checkpoint_is_still_replaced(world: Any) -> None:
    for step in (20, 25):
        world.cluster.corrupt("demo", step)
    world.cluster.kill_node("node-1")
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert causes(incident)[:2] == [("checkpoint demo/step-25", "F23"), ("node node-1", "F18")]
    assert kinds(incident) == ["isolate_node", "rollback_checkpoint"]
    assert world.nodes == ["node-0", "node-3", "node-2"]


def test_when_every_checkpoint_is_damaged_a_person_is_paged_and_nothing_starts_from_scratch(world: Any) -> None:
    for step in (10, 20, 25):
        world.cluster.corrupt("demo", step)
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.ESCALATED
    assert kinds(incident)[-1] == "page_human"
    assert any("no committed checkpoint can be used" in note for note in incident.notes)
    assert [attempt.number for attempt in world.cluster.starts] == [1]


def test_a_job_that_never_committed_starts_over(make_world: Make) -> None:
    world = make_world(training=SimTraining(start_s=3.2, memory_every=500, disk_every=500))
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert world.attempt.resume is None


def test_two_kills_of_one_rank_on_one_node_isolate_the_node(world: Any) -> None:
    world.cluster.kill_rank("demo", 1)
    world.heal()
    world.cluster.advance(2.0)
    world.cluster.kill_rank("demo", 1)
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert kinds(incident) == ["isolate_node", "rollback_checkpoint"]
    assert world.nodes == ["node-0", "node-3", "node-2"]


def test_kills_of_different_ranks_evict_nobody(world: Any) -> None:
    for rank in (0, 1, 2):
        world.cluster.kill_rank("demo", rank)
        assert kinds(world.heal()) == ["restart_process", "rollback_checkpoint"]
        world.cluster.advance(2.0)
    assert world.nodes == ["node-0", "node-1", "node-2"]


def test_a_storm_without_an_origin_is_unknown_and_restarted(world: Any) -> None:
    world.cluster.job("demo").end_all(78, "peer_lost")
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert causes(incident)[0] == ("job demo", "UNKNOWN")
    assert kinds(incident) == ["restart_process", "rollback_checkpoint"]


def test_a_third_unknown_is_a_persons(world: Any) -> None:
    for _ in range(2):
        world.cluster.job("demo").end_all(78, "peer_lost")
        assert world.heal().state is IncidentState.RESOLVED
        world.cluster.advance(2.0)
    world.cluster.job("demo").end_all(78, "peer_lost")
    incident = world.heal()
    assert (incident.state, kinds(incident)) == (IncidentState.ESCALATED, ["page_human"])
    assert "tried 2 times" in incident.notes[-1]


def test_monitoring_faults_change_nothing(world: Any) -> None:
    before = list(world.cluster.calls)
    incident = world.heal(world.anomaly(EntityKind.NODE, "node-1", "frozen"))
    assert incident.state is IncidentState.DISMISSED
    assert actions(incident) == [("watch", "node node-1", "succeeded")]
    assert world.cluster.calls == before


def test_without_a_spare_a_person_is_paged(make_world: Make) -> None:
    world = make_world(spares=0)
    world.cluster.kill_node("node-1")
    incident = world.heal()
    assert (incident.state, kinds(incident)) == (IncidentState.ESCALATED, ["page_human"])
    assert incident.plan is not None
    assert incident.plan.refused == ("no free node can take over the rank of node-1",)


def test_without_a_spare_the_job_shrinks_where_that_is_allowed(make_world: Make) -> None:
    world = make_world(spares=0, allow_rescale=True)
    world.cluster.kill_node("node-1")
    incident = world.heal()
    assert incident.state is IncidentState.RESOLVED
    assert kinds(incident) == ["rescale", "rollback_checkpoint"]
    assert world.nodes == ["node-0", "node-2"]
    assert world.attempt.resume == ResumePoint(step=20, tier="disk", attempt=1)


def test_nodes_that_fall_silent_together_are_left_together_and_not_isolated_one_by_one(make_world: Make) -> None:
    world = make_world(spares=2)
    world.cluster.kill_node("node-0")
    world.cluster.kill_node("node-1")
    world.cluster.kill_node("node-4")
    seen = (*world.seen(), world.anomaly(EntityKind.NODE, "node-4", "liveness", probe="refused", silent_s=3.0))
    world.cluster.revive("node-4")
    incident = world.heal(*seen)
    assert causes(incident)[0] == ("leaf leaf-0", "F16")
    assert kinds(incident) == ["rescale", "rollback_checkpoint", "page_human"]
    assert incident.state is IncidentState.RESOLVED
    assert set(world.nodes) == {"node-2", "node-3", "node-4"}
    assert not any(node.cordoned for node in world.cluster.snapshot(timeout_s=1).nodes.values())


def test_a_shared_cause_that_leaves_too_few_nodes_is_a_persons(make_world: Make) -> None:
    world = make_world(spares=2)
    for name in ("node-0", "node-1", "node-4"):
        world.cluster.kill_node(name)
    incident = world.heal(
        *world.seen(), world.anomaly(EntityKind.NODE, "node-4", "liveness", probe="refused", silent_s=3.0)
    )
    assert (incident.state, kinds(incident)) == (IncidentState.ESCALATED, ["page_human"])
    assert [attempt.number for attempt in world.cluster.starts] == [1]


def test_a_full_disk_is_a_persons(world: Any) -> None:
    world.cluster.job("demo").end(0, WorkerState.EXITED, 74, "disk_full")
    world.cluster.job("demo").end_all(78, "peer_lost")
    incident = world.heal()
    assert causes(incident)[0][1] == "F24"
    assert (incident.state, kinds(incident)) == (IncidentState.ESCALATED, ["page_human"])
