"""Membership of an attempt, and outcomes of verbs."""

from __future__ import annotations

from everstep.core.engine import Attempt, Outcomes, RankPlacement


def _attempt(*nodes: str) -> Attempt:
    places = [RankPlacement(rank=rank, node=node, local_rank=0) for rank, node in enumerate(nodes)]
    return Attempt(job="demo", number=1, placements=tuple(places))


def test_nodes_stand_in_rank_order_each_once() -> None:
    attempt = _attempt("b", "b", "a", "c", "a")
    assert attempt.world_size == 5
    assert attempt.nodes == ("b", "a", "c")


def test_only_outcomes_that_say_something_have_failed() -> None:
    assert Outcomes(by_node={"a": "", "b": "timed out"}).failed == {"b": "timed out"}
    assert Outcomes(by_node={"a": ""}).failed == {}
