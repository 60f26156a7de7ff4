from __future__ import annotations

from typing import Any

from everstep.core.engine import WorkerState, WorkerStatus
from everstep.core.settings import JobSettings
from everstep.service.launcher import Launcher

World = Any


def launcher(world: World, **job: Any) -> Launcher:
    jobs = [JobSettings(name="demo", world_size=3, **job)]
    topology = world.settings.topology()
    return Launcher(jobs, topology, world.engine, world.controller, world.store, world.metrics)


def worker(rank: int, state: WorkerState, *, attempt: int = 4, code: int | None = None) -> WorkerStatus:
    return WorkerStatus(node=f"node-{rank}", job="demo", rank=rank, attempt=attempt, pid=1, state=state, exit_code=code)


def last(world: World, number: int = 4) -> None:
    world.launch(number)
    world.store.save_attempt(world.controller.attempts.pop("demo"))


def test_starts_when_enough_nodes_outside_the_reserve_are_ready(world: World) -> None:
    made = launcher(world)
    world.engine.down["node-2"] = "refused"
    made.look()
    assert world.controller.launched == []
    world.engine.down.clear()
    world.engine.standby_ready = False
    made.look()
    assert world.controller.launched == []
    world.engine.standby_ready = True
    made.look()
    made.look()
    assert world.controller.launched == ["demo"]
    assert made.waiting == ()


def test_cold_jobs_need_no_warm_parent(world: World) -> None:
    world.engine.standby_ready = False
    launcher(world, cold=True).look()
    assert world.controller.launched == ["demo"]


def test_a_running_attempt_is_adopted_not_started_twice(world: World) -> None:
    last(world)
    world.engine.workers = {"node-1": (worker(1, WorkerState.RUNNING),)}
    launcher(world).look()
    assert world.controller.launched == []
    assert [found.number for found in world.controller.adopted] == [4]


def test_a_broken_attempt_is_followed_by_a_new_one(world: World) -> None:
    last(world)
    world.engine.workers = {"node-1": (worker(1, WorkerState.KILLED, code=-9),)}
    launcher(world).look()
    assert world.controller.launched == ["demo"]


def test_a_completed_job_is_left_alone(world: World) -> None:
    last(world)
    world.engine.workers = {f"node-{rank}": (worker(rank, WorkerState.EXITED, code=0),) for rank in range(3)}
    made = launcher(world)
    made.look()
    assert world.controller.launched == []
    assert made.waiting == ()


def test_without_autostart_nothing_is_started(world: World) -> None:
    made = launcher(world, autostart=False)
    made.look()
    assert world.controller.launched == []
    assert made.waiting == ()
