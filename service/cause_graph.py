"""The newest incident as a graph for the node graph panel: who is suspected how much, and what led to whom.

Pure. Bounded, and empty a while after the incident is over, so that its series end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from everstep.core.events import OPEN_STATES, Entity, Incident
from everstep.core.faults import FAULT_BY_ID

MOST_NODES = 50
MOST_EDGES = 200
SHOWN_S = 900.0
"""How long a closed incident is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseGraph:
    """`scores` by (id, title), `weights` by (id, source, target); both 0 to 1."""

    scores: dict[tuple[str, ...], float] = field(default_factory=dict)
    weights: dict[tuple[str, ...], float] = field(default_factory=dict)


def newest_with_causes(incidents: Iterable[Incident], *, now: float) -> Incident | None:
    """The incident that was opened last, of those that have causes and are not over for long."""
    shown = (incident for incident in incidents if incident.causes and now - _ended(incident, now) <= SHOWN_S)
    return max(shown, key=lambda incident: incident.opened, default=None)


def _ended(incident: Incident, now: float) -> float:
    """When it was over; now for one that is still open."""
    if incident.closed is not None:
        return incident.closed
    return now if incident.state in OPEN_STATES else incident.recovered or incident.opened


def cause_graph(incident: Incident | None) -> CauseGraph:
    """Suspects with their confidence, likeliest first, then what their chains name; edges go from suspect to sign."""
    if incident is None:
        return CauseGraph()
    titles: dict[str, tuple[str, float]] = {}
    for cause in sorted(incident.causes, key=lambda cause: -cause.confidence):
        fault = FAULT_BY_ID.get(cause.fault)
        name = f"{cause.fault} {fault.name}" if fault is not None else cause.fault
        titles.setdefault(_id(cause.entity), (f"{cause.entity}: {name}", _share(cause.confidence)))
    weights: dict[tuple[str, str], float] = {}
    for source, target, weight in _edges(incident):
        titles.setdefault(_id(target), (str(target), 0.0))
        ends = _id(source), _id(target)
        weights[ends] = max(weight, weights.get(ends, 0.0))
    kept = dict(list(titles.items())[:MOST_NODES])
    return CauseGraph(
        scores={(key, title): score for key, (title, score) in kept.items()},
        weights={
            (f"{source} > {target}", source, target): weight
            for (source, target), weight in list(weights.items())[:MOST_EDGES]
            if source in kept and target in kept
        },
    )


def _edges(incident: Incident) -> Iterable[tuple[Entity, Entity, float]]:
    for cause in sorted(incident.causes, key=lambda cause: -cause.confidence):
        for link in cause.chain:
            if link.entity != cause.entity:
                yield cause.entity, link.entity, _share(cause.confidence)
    best = max(incident.causes, key=lambda cause: cause.confidence)
    for anomaly in incident.anomalies:
        if anomaly.entity != best.entity:
            yield best.entity, anomaly.entity, _share(best.confidence)


def _id(entity: Entity) -> str:
    return f"{entity.kind}/{entity.name}"


def _share(confidence: float) -> float:
    return min(1.0, max(0.0, confidence))
