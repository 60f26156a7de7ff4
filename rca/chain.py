"""The words of a verdict: the chain of evidence, what separates it from its rival, what was not seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from everstep.core.events import Anomaly, Evidence
from everstep.core.faults import FAULT_BY_ID
from everstep.rca.graph import CauseGraph
from everstep.rca.hypotheses import Hypothesis, Seen
from everstep.rca.rules import EXPECTED, TELLTALE

Facts = Mapping[str, Any]
MOST_VICTIMS = 8
MOST_LINKS = 24
_EXPECTED_VALUE: dict[str, str] = {
    "process": "running",
    "liveness": "the agent pushes once a second",
    "progress": "a step within the deadline",
    "nonfinite": "finite values",
    "peers": "as fast as its peers",
    "checkpoint": "checksums agree",
    "gpus": "every GPU answers, no error code",
}


def chain_of(one: Hypothesis, seen: Seen, explained: Collection[int], *, now: float) -> tuple[Evidence, ...]:
    """Supports by onset, then victims; long lists are cut and say so."""
    supports = sorted(one.supports, key=lambda index: (seen[index][0].onset_earliest, index))
    links = [_link(seen[index][0], one.supports[index][1]) for index in supports[:MOST_LINKS]]
    victims = sorted(set(explained) - set(supports), key=lambda index: (seen[index][0].onset_earliest, index))
    links += [_link(seen[index][0], f"explained as a victim: {seen[index][1]}") for index in victims[:MOST_VICTIMS]]
    left_out = len(supports) - MOST_LINKS if len(supports) > MOST_LINKS else 0
    left_out += max(0, len(victims) - MOST_VICTIMS)
    if left_out:
        links.append(
            Evidence(
                at=now, entity=one.entity, metric="", observed=f"{left_out} more", expected="", rule="same as above"
            )
        )
    return tuple(links)


def rival_text(one: Hypothesis, rival: Hypothesis | None, seen: Seen, rival_explains: Collection[int]) -> str:
    if rival is None:
        return ""
    name = f"{rival.entity} {FAULT_BY_ID[rival.fault].name}"
    unexplained = sorted({str(seen[index][1]) for index in set(one.supports) - set(rival_explains)})
    telltale = TELLTALE.get(rival.fault, "more evidence")
    if unexplained:
        return f"{name}, but it leaves unexplained: {', '.join(unexplained)}; would be told by {telltale}"
    return f"{name}, less likely before and after the evidence; would be told by {telltale}"


def missing_of(one: Hypothesis, seen: Seen, graph: CauseGraph) -> tuple[str, ...]:
    """What should have been seen and was not."""
    missing = []
    if not seen:
        missing.append("any anomaly")
    expected = EXPECTED.get(one.fault)
    if expected is not None and not any(seen[index][1] in expected[0] for index in one.supports):
        missing.append(expected[2])
    unplaced = sorted(
        {
            str(anomaly.entity)
            for index in one.supports
            for anomaly in (seen[index][0],)
            if anomaly.entity.kind == "rank" and graph.node_of(anomaly.entity) is None
        }
    )
    missing += [f"the placement of {entity}" for entity in unplaced[:MOST_VICTIMS]]
    return tuple(missing)


def _link(anomaly: Anomaly, rule: str) -> Evidence:
    return Evidence(
        at=anomaly.onset_latest,
        entity=anomaly.entity,
        metric=anomaly.metric,
        observed=_observed(anomaly),
        expected=_EXPECTED_VALUE.get(anomaly.detector, f"{anomaly.expected:g}"),
        rule=rule,
    )


def _observed(anomaly: Anomaly) -> str:
    words = _WORDS.get(anomaly.detector)
    return words(anomaly, anomaly.evidence) if words is not None else f"{anomaly.observed:g}"


def _process(anomaly: Anomaly, facts: Facts) -> str:
    del anomaly
    words = [str(facts.get("state", "ended"))]
    words += [str(facts["reason"])] if facts.get("reason") else []
    words += [f"exit code {facts['exit_code']}"] if facts.get("exit_code") is not None else []
    return ", ".join(words)


def _liveness(anomaly: Anomaly, facts: Facts) -> str:
    del anomaly
    return f"silent for {facts.get('silent_s', '?')} s, probe: {facts.get('probe', '?')}"


def _progress(anomaly: Anomaly, facts: Facts) -> str:
    del facts
    return f"no step for {anomaly.observed:.2f} s, deadline {anomaly.expected:.2f} s"


def _nonfinite(anomaly: Anomaly, facts: Facts) -> str:
    del anomaly
    source = "input" if facts.get("input_nonfinite") else "result"
    return f"non-finite {source} at step {facts.get('step', '?')}, batch {facts.get('batch', '?')}"


def _peers(anomaly: Anomaly, facts: Facts) -> str:
    del anomaly
    return f"{facts.get('ratio', '?')} times the peers' compute time over {facts.get('steps', '?')} steps"


def _checkpoint(anomaly: Anomaly, facts: Facts) -> str:
    del anomaly
    return str(facts.get("problem", "damaged"))


def _gpus(anomaly: Anomaly, facts: Facts) -> str:
    if "xid" in facts:
        return f"XID {facts['xid']}, {anomaly.observed:g} more"
    return f"does not answer, {facts.get('present', '?')} of {facts.get('expected', '?')} GPUs present"


_WORDS: dict[str, Callable[[Anomaly, Facts], str]] = {
    "process": _process,
    "liveness": _liveness,
    "progress": _progress,
    "nonfinite": _nonfinite,
    "peers": _peers,
    "checkpoint": _checkpoint,
    "gpus": _gpus,
}
