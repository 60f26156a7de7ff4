"""Gangs, spares, migration and resizing on plain values."""

from __future__ import annotations

import doctest

import pytest

from everstep.core.engine import RankPlacement
from everstep.scheduler import Host, PlacementError, gang, migrate, placement, replace_nodes, resize, target_for


def hosts(*names: str, rack: str = "rack-0", leaf: str = "leaf-0", free: int = 1, spare: bool = False) -> list[Host]:
    return [Host(name=name, rack=rack, leaf=leaf, free=free, spare=spare) for name in names]


def nodes(placed: tuple[RankPlacement, ...]) -> list[str]:
    return [one.node for one in placed]


def test_examples_in_the_docstrings() -> None:
    failed, tried = doctest.testmod(placement)
    assert (failed, tried > 0) == (0, True)


def test_gang_takes_the_tightest_domain_that_fits() -> None:
    pool = [
        *hosts("a", "b", "c", "d", rack="big"),
        *hosts("x", "y", rack="small"),
        *hosts("z", rack="far", leaf="leaf-1"),
    ]
    assert nodes(gang(2, pool)) == ["x", "y"]
    assert nodes(gang(3, pool)) == ["a", "b", "c"]
    assert set(nodes(gang(6, pool))) == {"a", "b", "c", "d", "x", "y"}


def test_gang_keeps_spares_in_reserve_until_they_are_needed() -> None:
    pool = [*hosts("s", spare=True), *hosts("a", "b")]
    assert nodes(gang(2, pool)) == ["a", "b"]
    assert nodes(gang(3, pool)) == ["a", "b", "s"]


def test_gang_fills_slots_and_counts_local_ranks() -> None:
    placed = gang(3, hosts("a", "b", free=2))
    assert [(one.rank, one.node, one.local_rank) for one in placed] == [(0, "a", 0), (1, "a", 1), (2, "b", 0)]


def test_gang_that_does_not_fit_names_the_mend() -> None:
    with pytest.raises(PlacementError, match="4 ranks do not fit into 2 free slots on 2 nodes; uncordon or add nodes"):
        gang(4, hosts("a", "b"))


def test_replacement_moves_only_the_ranks_of_the_bad_node() -> None:
    placed = gang(3, hosts("a", "b", "c"))
    pool = [*hosts("a", "c"), *hosts("near", spare=True), *hosts("far", rack="rack-9", spare=True)]
    assert nodes(replace_nodes(placed, {"b"}, pool)) == ["a", "near", "c"]


def test_replacement_prefers_the_rack_of_the_old_node() -> None:
    placed = gang(2, [*hosts("a", rack="r0"), *hosts("b", rack="r1")])
    pool = [*hosts("a", "s0", rack="r0"), *hosts("b", "s1", rack="r1")]
    assert nodes(placed) == ["a", "b"]
    assert nodes(replace_nodes(placed, {"b"}, pool)) == ["a", "s1"]
    assert nodes(replace_nodes(placed, {"a"}, pool)) == ["s0", "b"]


def test_ranks_of_hosts_that_are_gone_move_too() -> None:
    placed = gang(2, hosts("a", "b"))
    assert nodes(replace_nodes(placed, set(), hosts("a", "s"))) == ["a", "s"]


def test_replacement_without_room_says_so() -> None:
    placed = gang(2, hosts("a", "b"))
    with pytest.raises(PlacementError, match="no free node can take over the rank of b"):
        replace_nodes(placed, {"b"}, hosts("a", "b"))


def test_migration_moves_one_rank_of_a_shared_node() -> None:
    placed = gang(2, hosts("a", free=2))
    moved = migrate(placed, 1, "s", [*hosts("a", free=2), *hosts("s", spare=True)])
    assert [(one.node, one.local_rank) for one in moved] == [("a", 0), ("s", 0)]
    assert target_for(placed, 1, [*hosts("a", free=2), *hosts("s", spare=True)]) == "s"


def test_migration_refuses_full_nodes_and_unknown_ranks() -> None:
    placed = gang(2, hosts("a", "b"))
    with pytest.raises(PlacementError, match="node a has no free slot for rank 1"):
        migrate(placed, 1, "a", hosts("a", "b"))
    with pytest.raises(PlacementError, match="the job has no rank 7; its ranks are 0 to 1"):
        migrate(placed, 7, "a", hosts("a", "b"))


def test_resize_shrinks_grows_and_refuses_nothing_silently() -> None:
    placed = gang(3, hosts("a", "b", "c"))
    assert nodes(resize(placed, 2, hosts("a", "c"))) == ["a", "c"]
    assert nodes(resize(placed, 4, hosts("a", "b", "c", "d"))) == ["a", "b", "c", "d"]
    with pytest.raises(PlacementError, match="a job cannot have 0 ranks"):
        resize(placed, 0, hosts("a"))
    with pytest.raises(PlacementError, match="no free node"):
        resize(placed, 4, hosts("a", "b", "c"))
