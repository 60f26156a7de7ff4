"""The suspects: every (entity, fault) that at least one rule of the table points at, with what speaks for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from everstep.core.events import Anomaly, Entity, EntityKind
from everstep.core.faults import FAULT_BY_ID, FAULTS, XID_POLICY
from everstep.rca.facts import Fact
from everstep.rca.graph import CauseGraph
from everstep.rca.rules import (
    ALERT_LLR,
    CHILD_FINE_LLR,
    CHILD_GONE_LLR,
    EQUAL_FAILURES,
    EQUAL_FAILURES_LLR,
    LEAF_LLR,
    NEWEST_LLR,
    SUPPORTS,
    SYMPTOM_LLR,
    TOGETHER_S,
    XID_LLR,
    Root,
    Support,
)

Seen = Sequence[tuple[Anomaly, Fact]]
_GONE = frozenset({Fact.NODE_REFUSED, Fact.NODE_SILENT})
_SHARED_PARENTS = ((EntityKind.LEAF, "F16"), (EntityKind.RACK, "F11"))


@dataclass(slots=True)
class Hypothesis:
    """`supports` maps indices of the seen anomalies to the best (llr, rule) that each gives."""

    entity: Entity
    fault: str
    supports: dict[int, tuple[float, str]] = field(default_factory=dict)
    bonus: float = 0.0

    def support(self, index: int, llr: float, rule: str) -> None:
        if index not in self.supports or self.supports[index][0] < llr:
            self.supports[index] = (llr, rule)


class Suspects:
    """Hypotheses by (entity, fault), each made on first mention."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[Entity, str], Hypothesis] = {}

    def of(self, entity: Entity, fault: str) -> Hypothesis:
        return self._by_key.setdefault((entity, fault), Hypothesis(entity=entity, fault=fault))

    def all(self) -> list[Hypothesis]:
        return [self._by_key[key] for key in sorted(self._by_key, key=lambda key: (key[1], key[0]))]


def suspects(seen: Seen, graph: CauseGraph, *, resume_step: int | None) -> list[Hypothesis]:
    """All hypotheses, UNKNOWN always among them; in a fixed order."""
    found = Suspects()
    found.of(graph.job, "UNKNOWN")
    for index, (anomaly, fact) in enumerate(seen):
        graph.add(anomaly.entity)
        for rule in _BY_FACT[fact]:
            for entity in _accused(rule, anomaly, graph, resume_step):
                graph.add(entity)
                found.of(entity, rule.fault).support(index, rule.llr, rule.rule)
        if fact in {Fact.SYMPTOM, Fact.TELEMETRY}:
            _add_symptoms(found, index, anomaly, graph)
    _add_equal_failures(found, seen, graph)
    _add_shared_parents(found, seen, graph)
    _prefer_newest_checkpoint(found)
    return found.all()


def _accused(rule: Support, anomaly: Anomaly, graph: CauseGraph, resume_step: int | None) -> Iterable[Entity]:
    if rule.root is Root.LAGGARD:
        return _laggards(anomaly, graph)
    if rule.root is Root.CHECKPOINT:
        return (_checkpoint(anomaly, graph, resume_step),)
    return (_ACCUSED[rule.root](anomaly, graph),)


def _itself(anomaly: Anomaly, graph: CauseGraph) -> Entity:
    del graph
    return anomaly.entity


def _process(anomaly: Anomaly, graph: CauseGraph) -> Entity:
    del graph
    return Entity(kind=EntityKind.PROCESS, name=anomaly.entity.name)


def _job(anomaly: Anomaly, graph: CauseGraph) -> Entity:
    del anomaly
    return graph.job


def _node_or_itself(anomaly: Anomaly, graph: CauseGraph) -> Entity:
    return _node(anomaly, graph) or anomaly.entity


def _checkpoint(anomaly: Anomaly, graph: CauseGraph, resume_step: int | None) -> Entity:
    step = anomaly.evidence.get("step", resume_step)
    name = f"{graph.job.name}/step-{step}" if step is not None else f"{graph.job.name}/newest"
    return Entity(kind=EntityKind.CHECKPOINT, name=name)


def _node(anomaly: Anomaly, graph: CauseGraph) -> Entity | None:
    named = anomaly.evidence.get("node")
    if isinstance(named, str) and named:
        return Entity(kind=EntityKind.NODE, name=named)
    return graph.node_of(anomaly.entity)


def _batch(anomaly: Anomaly, graph: CauseGraph) -> Entity:
    batch = anomaly.evidence.get("batch")
    if not isinstance(batch, int) or batch < 0:
        return graph.job
    return Entity(kind=EntityKind.BATCH, name=f"{graph.job.name}/{batch}")


def _mount(anomaly: Anomaly, graph: CauseGraph) -> Entity:
    node = _node(anomaly, graph)
    mounts = graph.parents(node, EntityKind.MOUNT) if node is not None else ()
    return mounts[0] if mounts else Entity(kind=EntityKind.MOUNT, name=f"{graph.job.name}/checkpoints")


def _laggards(anomaly: Anomaly, graph: CauseGraph) -> Iterable[Entity]:
    """The one rank that is behind all others, if there is exactly one."""
    steps = anomaly.evidence.get("last_steps")
    if not isinstance(steps, Mapping) or len(steps) < 2:
        return ()
    known = {rank: step for rank, step in steps.items() if isinstance(step, int | float)}
    behind = [rank for rank, step in known.items() if step == min(known.values())]
    if len(behind) != 1 or len(known) < 2:
        return ()
    return (Entity(kind=EntityKind.RANK, name=f"{graph.job.name}/{behind[0]}"),)


def _add_symptoms(found: Suspects, index: int, anomaly: Anomaly, graph: CauseGraph) -> None:
    """Hints of the fault table: metric and direction fit a symptom, the entity or its node can be the root."""
    xid = anomaly.evidence.get("xid")
    policy = XID_POLICY.get(xid) if isinstance(xid, int) else None
    if policy is not None and policy.fault is not None:
        found.of(anomaly.entity, policy.fault).support(index, XID_LLR, f"XID {policy.xid}: {policy.meaning}")
    named = anomaly.evidence.get("fault")
    if anomaly.detector == "alert" and named in FAULT_BY_ID and named != "UNKNOWN":
        rule = f"alert {anomaly.evidence.get('alert', '')}".strip()
        found.of(anomaly.entity, str(named)).support(index, ALERT_LLR, rule)
    node = _node(anomaly, graph)
    places = [anomaly.entity, *([node] if node is not None else [])]
    for fault in _BY_SYMPTOM.get((anomaly.metric, anomaly.direction.value), ()):
        roots = _ROOT_KINDS[fault]
        entity = next((place for place in places if place.kind in roots), None)
        if entity is not None:
            found.of(entity, fault).support(index, SYMPTOM_LLR, "a symptom in the fault table")


def _add_equal_failures(found: Suspects, seen: Seen, graph: CauseGraph) -> None:
    """The same failure on different nodes at once is the program's, not a node's."""
    groups: dict[tuple[Fact, str], list[int]] = defaultdict(list)
    for index, (anomaly, fact) in enumerate(seen):
        if fact in EQUAL_FAILURES:
            groups[fact, str(anomaly.evidence.get("exit_code"))].append(index)
    for (fact, _), indices in sorted(groups.items()):
        nodes = {_node(seen[index][0], graph) or seen[index][0].entity for index in indices}
        if len(nodes) < 2:
            continue
        llr = max(rule.llr for rule in _BY_FACT[fact])
        for index in indices:
            found.of(graph.job, "SOFTWARE").support(index, llr, "equal failures on different nodes")
        found.of(graph.job, "SOFTWARE").bonus = EQUAL_FAILURES_LLR


def _prefer_newest_checkpoint(found: Suspects) -> None:
    """Of several damaged checkpoints the newest is the one that the job would have continued from."""
    damaged = [one for one in found.all() if one.entity.kind is EntityKind.CHECKPOINT and one.supports]
    if damaged:
        max(damaged, key=lambda one: step_of(one.entity)).bonus += NEWEST_LLR


def step_of(entity: Entity) -> int:
    """The step in the name of a checkpoint, -1 when there is none."""
    step = entity.name.rpartition("step-")[2]
    return int(step) if step.isascii() and step.isdigit() else -1


def _add_shared_parents(found: Suspects, seen: Seen, graph: CauseGraph) -> None:
    """Half or more of a leaf's or rack's nodes fall silent together: suspect what they share."""
    gone = {anomaly.entity: index for index, (anomaly, fact) in enumerate(seen) if fact in _GONE}
    for kind, fault in _SHARED_PARENTS:
        for parent in sorted({parent for node in gone for parent in graph.parents(node, kind)}):
            children = [child for child in graph.children(parent) if child.kind is EntityKind.NODE]
            hit = [child for child in children if child in gone]
            onsets = [seen[gone[child]][0].onset_earliest for child in hit]
            if len(hit) < 2 or 2 * len(hit) < len(children) or max(onsets) - min(onsets) > TOGETHER_S:
                continue
            suspect = found.of(parent, fault)
            for child in hit:
                suspect.support(
                    gone[child], CHILD_GONE_LLR, f"{len(hit)} of {len(children)} nodes fell silent together"
                )
            suspect.bonus = CHILD_FINE_LLR * (len(children) - len(hit)) + (LEAF_LLR if kind is EntityKind.LEAF else 0.0)


_ACCUSED: dict[Root, Callable[[Anomaly, CauseGraph], Entity]] = {
    Root.SELF: _itself,
    Root.PROCESS: _process,
    Root.NODE: _node_or_itself,
    Root.JOB: _job,
    Root.BATCH: _batch,
    Root.MOUNT: _mount,
}


def _rules_by_fact() -> dict[Fact, tuple[Support, ...]]:
    return {fact: tuple(rule for rule in SUPPORTS if rule.fact is fact) for fact in Fact}


def _faults_by_symptom() -> dict[tuple[str, str], tuple[str, ...]]:
    keys = {(symptom.metric, symptom.direction.value) for fault in FAULTS for symptom in fault.symptoms}
    return {
        key: tuple(
            fault.id
            for fault in FAULTS
            if any((symptom.metric, symptom.direction.value) == key for symptom in fault.symptoms)
        )
        for key in keys
    }


_BY_FACT = _rules_by_fact()
_BY_SYMPTOM = _faults_by_symptom()
_ROOT_KINDS = {fault.id: frozenset(fault.root_kind) for fault in FAULTS}
