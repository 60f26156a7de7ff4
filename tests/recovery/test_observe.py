"""What a snapshot says about an attempt."""

from __future__ import annotations

from typing import Any

from everstep.core.events import EntityKind
from everstep.recovery import observe


def test_a_healthy_attempt_has_no_troubles(world: Any) -> None:
    assert world.seen() == ()
    assert not observe.completed(world.cluster.snapshot(timeout_s=1), world.attempt)


def test_dead_workers_and_silent_nodes_of_the_attempt(world: Any) -> None:
    world.cluster.kill_node("node-1")
    world.cluster.deafen("node-3")
    found = {str(one.entity): one.evidence for one in world.seen()}
    assert found["node node-1"]["probe"] == "refused"
    assert "node node-3" not in found
    assert found["rank demo/0"] == {"state": "exited", "exit_code": 78, "reason": "peer_lost", "node": "node-0"}


def test_workers_of_other_attempts_do_not_count(world: Any) -> None:
    old = world.attempt
    world.cluster.kill_rank("demo", 1)
    world.heal()
    assert observe.troubles(world.cluster.snapshot(timeout_s=1), old) == ()


def test_an_orderly_end_is_no_trouble(world: Any) -> None:
    world.cluster.job("demo").end_all(0, "success")
    assert world.seen() == ()
    assert observe.completed(world.cluster.snapshot(timeout_s=1), world.attempt)


def test_only_what_stops_the_attempt_is_relevant(world: Any) -> None:
    away = world.anomaly(EntityKind.NODE, "node-3", "liveness", probe="refused")
    here = world.anomaly(EntityKind.NODE, "node-0", "liveness", probe="refused")
    assert observe.relevant((away, here, world.slow(1), world.stopped(1)), world.attempt) == (here, world.stopped(1))


def test_merging_keeps_the_first_word_on_each(world: Any) -> None:
    first, second = world.stopped(1), world.stopped(2)
    assert observe.merged((first,), (second, first)) == (first, second)
