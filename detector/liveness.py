"""Agents that have fallen silent. Silence alone proves nothing about a node: it is probed before it counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from everstep.core.events import Anomaly, Direction, Entity, EntityKind

METRIC = "everstep_agent_up"


def silent_nodes(
    last_push: Mapping[str, float], nodes: Iterable[str], *, since: float, deadline_s: float, now: float
) -> tuple[str, ...]:
    """Nodes without a push for `deadline_s`; `since` is when watching began, so that nobody is late at the start."""
    return tuple(node for node in nodes if now - max(last_push.get(node, since), since) > deadline_s)


def unreachable(node: str, *, probe: str, last_push: float, deadline_s: float, now: float) -> Anomaly:
    """A node whose agent does not answer; `probe` says how: refused, timeout or http-<status>."""
    silent_s = max(0.0, now - last_push)
    return Anomaly(
        entity=Entity(kind=EntityKind.NODE, name=node),
        metric=METRIC,
        onset_earliest=last_push,
        onset_latest=now,
        score=max(1.5, silent_s / deadline_s),
        direction=Direction.ABSENT,
        detector="liveness",
        observed=0.0,
        expected=1.0,
        evidence={"probe": probe, "silent_s": round(silent_s, 3)},
    )
