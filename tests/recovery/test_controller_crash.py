"""The controller dies between any two steps; the next one takes the incident up and finishes it exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everstep.core.events import Incident, IncidentState


class Crash(BaseException):
    """The process is gone: nothing may catch this."""


class Fuse:
    """Wraps an engine or a store and blows before or after the n-th call that changes or asks something."""

    def __init__(self, inner: Any, countdown: list[int], *, after: bool) -> None:
        self._inner = inner
        self._countdown = countdown
        self._after = after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if not callable(real):
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self._countdown[0] -= 1
            blows = self._countdown[0] == 0
            if blows and not self._after:
                raise Crash
            result = real(*args, **kwargs)
            if blows:
                raise Crash
            return result

        return call


def break_it(world: Any, fault: str) -> Incident:
    match fault:
        case "kill":
            world.cluster.kill_rank("demo", 1)
            return world.incident()  # type: ignore[no-any-return]
        case "node":
            world.cluster.kill_node("node-1")
            return world.incident()  # type: ignore[no-any-return]
        case "nan":
            world.cluster.poison("demo", 32)
            world.cluster.advance(1.0)
            return world.incident(world.nonfinite(32))  # type: ignore[no-any-return]
        case _:
            return world.incident(world.slow(1))  # type: ignore[no-any-return]


def crash_at(world: Any, incident: Incident, call: int, *, in_store: bool, after: bool) -> bool:
    """Whether the controller crashed before it was done."""
    countdown = [call]
    attempt, store = world.attempt, world.store
    if in_store:
        world.store = Fuse(store, countdown, after=after)
        doomed = world.new_controller()
    else:
        doomed = world.new_controller(engine=Fuse(world.cluster, countdown, after=after))
    doomed.adopt(attempt)
    world.store = store
    try:
        doomed.handle(incident)
    except Crash:
        return True
    return False


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("in_store", [False, True])
@pytest.mark.parametrize("fault", ["kill", "node", "nan", "slow"])
def test_a_crash_anywhere_is_survived(make_world: Callable[..., Any], fault: str, in_store: bool, after: bool) -> None:
    crashes = 0
    for call in range(1, 60):
        world = make_world()
        incident = break_it(world, fault)
        if not crash_at(world, incident, call, in_store=in_store, after=after):
            break
        crashes += 1
        second = world.new_controller()
        result = second.handle(world.store.get(incident.id) or incident)
        assert result.state is IncidentState.RESOLVED, (call, result.notes)
        assert len(world.cluster.starts) == 2, call
        assert {one.outcome.value for one in result.actions} == {"succeeded"}, call
        assert len(result.actions) == (1 if fault == "slow" else 2), call
        last = world.store.last_attempt("demo")
        assert last == world.cluster.starts[-1], call
        expected = "node-1" if fault in {"kill", "nan"} else "node-3"
        assert [one.node for one in last.placements] == ["node-0", expected, "node-2"], call
        assert last.skip_batches == ((32,) if fault == "nan" else ()), call
    assert crashes >= 5


def test_a_resolved_incident_is_not_handled_again_by_a_restart(make_world: Callable[..., Any]) -> None:
    world = make_world()
    world.cluster.kill_rank("demo", 1)
    done = world.heal()
    again = world.new_controller()
    assert again.handle(done) == done
    assert len(world.cluster.starts) == 2
