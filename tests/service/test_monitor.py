"""The verdict scenarios: the right anomalies, exactly one incident, none in a healthy run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from everstep.core.engine import WorkerState, WorkerStatus
from everstep.core.events import Incident, IncidentState
from everstep.core.remote_write import decompress, encode_series, series
from everstep.service.goodput import TimeClass

World = Any


def names(incident: Incident, detector: str) -> set[str]:
    return {anomaly.entity.name for anomaly in incident.anomalies if anomaly.detector == detector}


def only(world: World) -> Incident:
    assert len(world.controller.handled) == 1
    assert len(world.store.incidents()) == 1
    return world.controller.handled[0]


def recover(world: World, nodes: tuple[str, ...] = ("node-0", "node-1", "node-2")) -> None:
    """The controller's reaction: the next attempt, on these nodes."""

    def react(incident: Incident) -> Incident:
        world.launch(incident.attempt + 1, nodes, at_step=max(0, world.step - 5))
        return replace(incident, state=IncidentState.RESOLVED, recovered=world.clock.now(), closed=world.clock.now())

    world.controller.react = react


def die(world: World, rank: int, *, state: str = "killed", code: int = -9, reason: str = "signal") -> None:
    agent = world.agents[rank]
    agent.state, agent.exit_code, agent.reason = state, code, reason
    world.stepping = False
    world.push(rank)


def test_healthy_noisy_run_of_500_steps_opens_nothing(world: World) -> None:
    world.launch()
    world.run(101)
    assert world.step >= 500
    assert world.anomalies == []
    assert world.store.incidents() == ()
    learned = world.monitor.baselines()["demo"]
    assert learned["learned"] is True
    assert abs(learned["median_step_s"] - 0.2) < 1e-6
    assert world.monitor.job_state("demo") == "running"
    seconds = world.goodput.seconds()["demo"]
    assert seconds[TimeClass.PRODUCTIVE] > 0.95 * sum(seconds.values())


@pytest.mark.parametrize("ahead", [300.0, -300.0, 10.0, -30.0, 3.0, -3.0])
@pytest.mark.parametrize("good_s", [0, 20])
def test_a_node_whose_clock_is_wrong_opens_nothing(world: World, ahead: float, good_s: int) -> None:
    world.launch()
    world.run(good_s)
    world.clocks[1] = ahead
    world.run(60)
    assert world.anomalies == []
    assert world.store.incidents() == ()


def test_killed_process_is_diagnosed_at_the_next_turn(world: World) -> None:
    world.launch()
    world.run(10)
    recover(world)
    die(world, 1)
    world.monitor.tick()
    incident = only(world)
    assert names(incident, "process") == {"demo/1"}
    assert incident.anomalies[0].evidence == {
        "state": "killed",
        "exit_code": -9,
        "reason": "signal",
        "node": "node-1",
    }
    assert incident.state is IncidentState.DIAGNOSED
    assert incident.diagnosed == world.clock.now()
    world.run(20)
    assert only(world).id == incident.id
    assert world.store.get(incident.id).state is IncidentState.RESOLVED


def test_victims_first_then_the_killed_rank(world: World) -> None:
    world.launch()
    world.run(10)
    recover(world)
    die(world, 0, state="exited", code=78, reason="peer_lost")
    world.monitor.tick()
    assert world.controller.handled == []
    world.clock.advance(0.1)
    die(world, 1)
    world.monitor.tick()
    incident = only(world)
    assert names(incident, "process") == {"demo/0", "demo/1"}


def test_stopped_process_is_a_hang(world: World) -> None:
    world.launch()
    world.run(10)
    recover(world)
    world.agents[2].state = "stopped"
    world.stepping = False
    world.push(2)
    world.run(0.8)
    assert world.controller.handled == []
    world.run(1.0)
    incident = only(world)
    assert names(incident, "process") == {"demo/2"}
    assert incident.anomalies[0].evidence["state"] == "stopped"


def test_dead_node_is_found_by_its_victims_and_a_refused_probe(world: World) -> None:
    world.launch()
    world.run(10)
    recover(world, ("node-0", "node-3", "node-2"))
    world.agents[1].alive = False
    world.stepping = False
    world.engine.down["node-1"] = "refused: connection refused"
    world.clock.advance(0.2)
    died = world.clock.now()
    for rank in (0, 2):
        die(world, rank, state="exited", code=78, reason="peer_lost")
    world.monitor.tick()
    world.run(0.3)
    incident = only(world)
    assert names(incident, "liveness") == {"node-1"}
    assert names(incident, "process") == {"demo/0", "demo/2"}
    probe = next(anomaly for anomaly in incident.anomalies if anomaly.detector == "liveness")
    assert probe.evidence["probe"] == "refused"
    assert incident.diagnosed - died < 0.7
    world.run(20)
    assert len(world.store.incidents()) == 1


def test_silent_node_without_victims_is_found_when_steps_stop(world: World) -> None:
    world.launch()
    world.run(10)
    recover(world, ("node-0", "node-3", "node-2"))
    world.agents[1].alive = False
    world.stepping = False
    world.engine.down["node-1"] = "timeout"
    world.run(6)
    incident = only(world)
    assert names(incident, "liveness") == {"node-1"}
    assert names(incident, "progress") == {"demo"}


def test_silent_agent_of_a_training_job_opens_nothing(world: World) -> None:
    world.launch()
    world.run(10)
    world.agents[1].alive = False
    world.engine.down["node-1"] = "refused"
    world.run(5)
    assert world.store.incidents() == ()


def test_poisoned_batch_names_the_rank_with_the_bad_input(world: World) -> None:
    world.launch()
    world.run(10)
    recover(world)
    world.agents[0].nonfinite = (1, 57, False)
    world.push(0)
    world.monitor.tick()
    assert world.controller.handled == []
    world.agents[1].nonfinite = (1, 57, True)
    world.push(1)
    world.monitor.tick()
    incident = only(world)
    assert names(incident, "nonfinite") == {"demo/0", "demo/1"}
    culprit = next(anomaly for anomaly in incident.anomalies if anomaly.entity.name == "demo/1")
    assert culprit.evidence["batch"] == 57
    assert culprit.evidence["input_nonfinite"] is True
    assert culprit.evidence["ranks"] == [0, 1]


def test_slow_rank_within_twenty_steps(world: World) -> None:
    world.launch()
    world.run(20)
    recover(world, ("node-0", "node-3", "node-2"))
    began = world.step
    found_at = []
    react = world.controller.react

    def move(incident: Incident) -> Incident:
        found_at.append(world.step)
        world.slow.clear()
        return react(incident)

    world.controller.react = move
    world.slow[1] = 1.5
    world.run(6)
    incident = only(world)
    assert names(incident, "peers") == {"demo/1"}
    assert found_at[0] - began <= 20
    assert set(incident.anomalies[0].evidence) == {"ratio", "votes", "steps", "node"}
    world.run(20)
    assert len(world.store.incidents()) == 1


def test_unconfirmed_stall_waits_for_its_long_deadline(world: World) -> None:
    world.launch()
    world.run(10)
    world.stepping = False
    world.run(100)
    assert world.store.incidents() == ()
    assert world.monitor.job_state("demo") == "stalled"
    world.run(30)
    assert names(only(world), "progress") == {"demo"}


def test_startup_that_never_steps(world: World) -> None:
    world.launch()
    world.stepping = False
    world.run(119)
    assert world.store.incidents() == ()
    world.run(3)
    incident = only(world)
    assert incident.anomalies[0].evidence["phase"] == "startup"


def test_victims_alone_are_judged_in_the_end(world: World) -> None:
    world.launch()
    world.run(10)
    for rank in range(3):
        die(world, rank, state="exited", code=78, reason="peer_lost")
    world.run(2.0)
    assert world.controller.handled == []
    world.run(1.0)
    assert names(only(world), "process") == {"demo/0", "demo/1", "demo/2"}


def test_a_probe_tells_of_a_death_that_no_push_has_told(world: World) -> None:
    world.launch()
    world.run(10)
    recover(world)
    world.agents[1].alive = False
    world.stepping = False
    killed = WorkerStatus(
        node="node-1", job="demo", rank=1, attempt=1, pid=9, state=WorkerState.KILLED, exit_code=-9, reason="signal"
    )
    world.engine.workers["node-1"] = (killed,)
    die(world, 0, state="exited", code=78, reason="peer_lost")
    world.monitor.tick()
    world.run(0.2)
    assert names(only(world), "process") == {"demo/0", "demo/1"}


def test_the_end_of_the_job_is_no_incident(world: World) -> None:
    world.launch()
    world.run(10)
    for rank in range(3):
        die(world, rank, state="exited", code=0, reason="success")
        world.run(0.5)
    world.run(200)
    assert world.store.incidents() == ()
    assert world.monitor.job_state("demo") == "completed"


def test_anomalies_of_the_new_attempt_go_to_the_controller(world: World) -> None:
    world.launch()
    world.run(10)
    held: list[Incident] = []

    class Never:
        def submit(self, fn: Any, /, *args: Any) -> Any:
            from concurrent.futures import Future

            held.extend(args)
            return Future()

    world.monitor._workers = Never()
    die(world, 1)
    world.monitor.tick()
    assert [incident.state for incident in held] == [IncidentState.DIAGNOSED]
    world.launch(2)
    world.run(1.5)
    die(world, 2)
    world.monitor.tick()
    assert len(world.controller.told) == 1
    told_id, told = world.controller.told[0]
    assert told_id == held[0].id
    assert [anomaly.entity.name for anomaly in told] == ["demo/2"]
    assert len(world.store.incidents()) == 1


def test_an_escalated_breakage_is_told_once(world: World) -> None:
    world.launch()
    world.run(10)
    world.controller.react = lambda incident: replace(incident, state=IncidentState.ESCALATED)
    die(world, 1)
    world.monitor.tick()
    world.run(1)
    for rank in (0, 2):
        die(world, rank, state="exited", code=78, reason="peer_lost")
    world.run(30)
    assert len(world.store.incidents()) == 1


def test_a_failing_recovery_escalates_and_is_counted(world: World) -> None:
    world.launch()
    world.run(10)

    def fail(incident: Incident) -> Incident:
        raise RuntimeError("no engine")

    world.controller.react = fail
    die(world, 1)
    world.monitor.tick()
    world.monitor.tick()
    (incident,) = world.store.incidents()
    assert incident.state is IncidentState.ESCALATED
    assert incident.notes == ("recovery failed: no engine",)
    assert world.metrics.errors("recovery") == 1


def test_after_a_pause_of_the_machine_nobody_is_late(world: World) -> None:
    world.launch()
    world.run(10)
    world.clock.advance(300)
    world.slot += 3000
    world.monitor.tick()
    world.run(1)
    assert world.store.incidents() == ()


def test_learned_baselines_survive_a_restart(world: World) -> None:
    world.launch()
    world.run(20)
    world.monitor.stop(timeout_s=1)
    again = world.make_monitor()
    assert again.baselines()["demo"]["median_step_s"] == pytest.approx(0.2)
    world.monitor = again
    world.run(2)
    assert again.baselines()["demo"]["learned"] is True


def test_detection_and_recovery_times_are_counted(world: World) -> None:
    world.launch()
    world.run(10)
    recover(world)
    die(world, 1)
    world.monitor.tick()
    world.run(0.2)
    sample = world.metrics.registry.get_sample_value
    labels = {"fault": "UNKNOWN", "class": "training"}
    assert sample("everstep_fault_detection_delay_seconds_count", labels) == 1


def push_gpus(world: World, node: str, *, up: float = 1.0, xid_79: float = 0.0) -> None:
    """One GPU of a node as its agent reports it."""
    world.clock.advance(0.01)
    now = world.clock.now()
    gpu = {"cluster": "default", "node": node, "gpu": "0", "uuid": f"GPU-{node}"}
    body = encode_series(
        [
            series("everstep_gpus_expected", {"cluster": "default", "node": node}, [(now, 1.0)]),
            series("everstep_gpu_up", gpu, [(now, up)]),
            series("everstep_gpu_xid_errors_total", {**gpu, "xid": "79"}, [(now, xid_79)]),
        ]
    )
    world.windows.apply(decompress(body, max_bytes=10**6), arrived=now)


def run_with_gpus(world: World, seconds: int, **last: float) -> None:
    for _ in range(seconds):
        world.run(1)
        for node in ("node-0", "node-1", "node-2"):
            push_gpus(world, node, **(last if node == "node-1" else {}))


def test_an_error_code_of_a_lost_gpu_is_found_while_the_job_still_steps(world: World) -> None:
    world.launch()
    run_with_gpus(world, 5)
    run_with_gpus(world, 1, xid_79=1.0)
    world.run(1)
    incident = only(world)
    assert names(incident, "gpus") == {"node-1/0"}
    assert incident.anomalies[0].evidence == {"node": "node-1", "xid": 79}


def test_a_silent_gpu_beside_a_job_that_steps_opens_nothing(world: World) -> None:
    world.launch()
    run_with_gpus(world, 5)
    run_with_gpus(world, 10, up=0.0)
    assert world.store.incidents() == ()
    assert world.anomalies == []


def test_a_silent_gpu_is_named_when_the_job_stands(world: World) -> None:
    world.launch()
    run_with_gpus(world, 10)
    world.stepping = False
    run_with_gpus(world, 5, up=0.0)
    incident = only(world)
    assert names(incident, "gpus") == {"node-1/0"}


def test_a_count_from_before_the_attempt_is_not_held_against_it(world: World) -> None:
    world.launch()
    run_with_gpus(world, 3)
    run_with_gpus(world, 1, xid_79=1.0)
    world.launch(2, at_step=world.step)
    run_with_gpus(world, 5, xid_79=1.0)
    assert all(incident.attempt == 1 for incident in world.store.incidents())


@pytest.mark.parametrize(
    "state",
    [{"durations": ["x"]}, {"durations": 3}, {"durations": [1.0] * 64, "peers": 3}, {"baseline": {"demo/0": "x"}}],
)
def test_damaged_learned_state_does_not_keep_the_service_from_starting(world: World, state: Any) -> None:
    world.store.save_learned("demo", 1.0, state)
    monitor = world.make_monitor()
    assert monitor.baselines()["demo"] == world.monitor.baselines()["demo"]
    assert not monitor.baselines()["demo"]["learned"]
