"""The newest incident as nodes and edges: bounded, from suspects to signs, gone a while after it is over."""

from __future__ import annotations

from dataclasses import replace

from everstep.core.events import Anomaly, Direction, Entity, EntityKind, Evidence, Incident, IncidentState, RootCause
from everstep.service.cause_graph import MOST_NODES, SHOWN_S, CauseGraph, cause_graph, newest_with_causes

NODE = Entity(kind=EntityKind.NODE, name="node-1")
RANK = Entity(kind=EntityKind.RANK, name="demo/1")
JOB = Entity(kind=EntityKind.JOB, name="demo")


def link(entity: Entity) -> Evidence:
    return Evidence(at=1.0, entity=entity, metric="m", observed="x", expected="y", rule="r")


def anomaly(entity: Entity) -> Anomaly:
    return Anomaly(
        entity=entity, metric="m", onset_earliest=1.0, onset_latest=1.0, score=1.0,
        direction=Direction.STOP, detector="d", observed=1.0, expected=0.0,
    )  # fmt: skip


INCIDENT = Incident(
    id="i",
    job="demo",
    attempt=1,
    opened=10.0,
    onset=9.0,
    anomalies=(anomaly(JOB),),
    causes=(
        RootCause(entity=RANK, fault="F25", confidence=0.2),
        RootCause(entity=NODE, fault="F18", confidence=0.9, chain=(link(NODE), link(RANK))),
    ),
)


def test_suspects_come_first_and_edges_lead_to_what_they_explain() -> None:
    graph = cause_graph(INCIDENT)
    assert [key for key, _ in graph.scores] == ["node/node-1", "rank/demo/1", "job/demo"]
    assert list(graph.scores.values()) == [0.9, 0.2, 0.0]
    assert next(iter(graph.scores))[1].startswith("node node-1: F18 ")
    assert {(source, target): weight for (_, source, target), weight in graph.weights.items()} == {
        ("node/node-1", "rank/demo/1"): 0.9,
        ("node/node-1", "job/demo"): 0.9,
    }


def test_it_is_bounded() -> None:
    many = tuple(link(Entity(kind=EntityKind.RANK, name=f"demo/{rank}")) for rank in range(500))
    graph = cause_graph(replace(INCIDENT, causes=(RootCause(entity=NODE, fault="F18", confidence=7.0, chain=many),)))
    assert len(graph.scores) == MOST_NODES
    assert len(graph.weights) == MOST_NODES - 1
    assert max(graph.scores.values()) == 1.0


def test_the_newest_counts_until_it_is_over_for_long() -> None:
    old = replace(INCIDENT, id="old", opened=5.0)
    empty = replace(INCIDENT, id="empty", opened=20.0, causes=())
    assert newest_with_causes((old, INCIDENT, empty), now=30.0) is INCIDENT
    closed = replace(INCIDENT, state=IncidentState.RESOLVED, closed=30.0)
    assert newest_with_causes((closed,), now=30.0 + SHOWN_S) is closed
    assert newest_with_causes((closed,), now=31.0 + SHOWN_S) is None
    assert cause_graph(None) == CauseGraph()
