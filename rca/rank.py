"""Scores the suspects and explains away: log prior + log-likelihood ratios - unexplained facts, round by round.

The best hypothesis takes with it what it explains; what is left and cannot be a victim needs a second cause. The list
holds first the causes, then the rivals of the first. Confidences are a softmax within each round, so that those of
several simultaneous causes may sum to more than one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from everstep.core.events import Anomaly, RootCause, Standing
from everstep.core.faults import FAULT_BY_ID
from everstep.core.topology import Topology
from everstep.rca.chain import chain_of, missing_of, rival_text
from everstep.rca.evidence import CauseEvidence
from everstep.rca.facts import Fact, fact_of
from everstep.rca.graph import CauseGraph
from everstep.rca.hypotheses import Hypothesis, Seen, suspects
from everstep.rca.rules import (
    BY_DEFAULT,
    CONTRADICTED,
    COUNTERS,
    EXPECTED,
    EXPLAINS,
    OTHERWISE,
    STEP_MARGIN_S,
    SUMMED,
    TEMPERATURE,
    UNEXPLAINED,
    UNKNOWN_CONFIDENCE,
    VICTIM_MARGIN_S,
    Explains,
    Scope,
)

MOST_CAUSES = 5
MOST_RANKED = 8
NEEDS_CAUSE = 3.0  # an unexplained fact of this price is nobody's victim
_DIGITS = 9  # scores closer than this are ties


def rank_causes(evidence: CauseEvidence, topology: Topology, *, now: float) -> list[RootCause]:
    """Causes, then rivals, each with its chain; never empty, never raises. UNKNOWN when nothing explains."""
    graph = CauseGraph(evidence.job, evidence.placements, topology)
    seen = _classified(evidence)
    case = _Case(seen, graph, suspects(seen, graph, resume_step=evidence.resume_step))
    rounds = case.rounds()
    chosen = [scored.best for scored in rounds]
    causes = [case.cause(scored, scored.best, chosen, now=now) for scored in rounds]
    first = rounds[0]
    rivals = [one for one in first.order if one not in chosen][: MOST_RANKED - len(causes)]
    return causes + [case.cause(first, rival, chosen, now=now) for rival in rivals]


def _classified(evidence: CauseEvidence) -> Seen:
    """Each anomaly with its fact; what later steps prove wrong is a fault of the telemetry."""
    size = len(evidence.placements)
    steps = [one.evidence.get("median_step_s") for one in evidence.anomalies]
    margin = max([STEP_MARGIN_S, *(step for step in steps if isinstance(step, int | float) and math.isfinite(step))])
    seen = []
    for anomaly in evidence.anomalies:
        fact = fact_of(anomaly, world_size=size)
        stepped = evidence.last_step_at
        if fact in CONTRADICTED and stepped is not None and stepped > anomaly.onset_latest + margin:
            fact = Fact.TELEMETRY
        seen.append((anomaly, fact))
    return tuple(seen)


@dataclass(slots=True)
class _Round:
    """Scores of one round over the facts that were still open; `order` has the best first."""

    open: frozenset[int]
    scores: dict[int, float]
    order: list[Hypothesis]

    @property
    def best(self) -> Hypothesis:
        return self.order[0]

    def score(self, one: Hypothesis) -> float:
        return self.scores[id(one)]


class _Case:
    """One disturbance under judgement."""

    def __init__(self, seen: Seen, graph: CauseGraph, hypotheses: list[Hypothesis]) -> None:
        self._seen = seen
        self._graph = graph
        self._hypotheses = hypotheses
        self._explained = {id(one): self._explains(one) for one in hypotheses}

    def rounds(self) -> list[_Round]:
        open_facts = frozenset(range(len(self._seen)))
        rounds = [self._round(open_facts, self._hypotheses)]
        while len(rounds) < MOST_CAUSES:
            open_facts -= self._explained[id(rounds[-1].best)]
            grave = {index for index in open_facts if UNEXPLAINED.get(self._seen[index][1], 0.0) >= NEEDS_CAUSE}
            taken = [scored.best for scored in rounds]
            able = [one for one in self._hypotheses if one not in taken and grave & one.supports.keys()]
            if not able or rounds[-1].best.fault == "UNKNOWN":
                break
            rounds.append(self._round(open_facts, able))
        return rounds

    def cause(self, scored: _Round, one: Hypothesis, chosen: Collection[Hypothesis], *, now: float) -> RootCause:
        others = [other for other in scored.order if other is one or not _among(other, chosen, besides=scored.best)]
        rival = next((other for other in others if other is not one), None)
        return RootCause(
            entity=one.entity,
            fault=one.fault,
            confidence=self._confidence(scored, one, others),
            chain=chain_of(one, self._seen, self._explained[id(one)], now=now),
            rival=rival_text(one, rival, self._seen, self._explained[id(rival)] if rival is not None else frozenset()),
            missing=missing_of(one, self._seen, self._graph),
            standing=Standing.CAUSE if one in chosen else Standing.RIVAL,
        )

    def _round(self, open_facts: frozenset[int], hypotheses: Sequence[Hypothesis]) -> _Round:
        scores = {id(one): round(self._score(one, open_facts), _DIGITS) for one in hypotheses}
        order = sorted(hypotheses, key=lambda one: (-scores[id(one)], one.fault, one.entity))
        return _Round(open=open_facts, scores=scores, order=order)

    def _score(self, one: Hypothesis, open_facts: frozenset[int]) -> float:
        best: dict[object, float] = {}
        for index in open_facts & one.supports.keys():
            anomaly, fact = self._seen[index]
            key = (fact, anomaly.entity) if one.fault in SUMMED else fact
            best[key] = max(best.get(key, 0.0), one.supports[index][0])
        left = open_facts - self._explained[id(one)]
        return (
            math.log(FAULT_BY_ID[one.fault].prior_per_gpu_hour)
            + sum(best.values())
            + one.bonus
            - (self._price(left) + self._against(one, open_facts))
        )

    def _price(self, left: frozenset[int]) -> float:
        counts: dict[Fact, int] = {}
        for index in left:
            fact = self._seen[index][1]
            counts[fact] = counts.get(fact, 0) + 1
        return sum(UNEXPLAINED.get(fact, OTHERWISE) * (1 + math.log(count)) for fact, count in sorted(counts.items()))

    def _against(self, one: Hypothesis, open_facts: frozenset[int]) -> float:
        facts = {self._seen[index][1] for index in open_facts}
        cost = -sum(llr for fault, signs, llr in COUNTERS if fault == one.fault and facts & signs)
        expected = EXPECTED.get(one.fault)
        if expected is not None and not any(self._seen[index][1] in expected[0] for index in one.supports):
            cost += expected[1]
        return cost

    def _explains(self, one: Hypothesis) -> frozenset[int]:
        rules = _rules_of(one.fault)
        onset = min((self._seen[index][0].onset_earliest for index in one.supports), default=-math.inf)
        victims = (
            index
            for index, (anomaly, fact) in enumerate(self._seen)
            if anomaly.onset_latest >= onset - VICTIM_MARGIN_S
            and any(fact in rule.facts and self._within(rule, one, anomaly) for rule in rules)
        )
        return frozenset({*one.supports, *victims})

    def _within(self, rule: Explains, one: Hypothesis, anomaly: Anomaly) -> bool:
        match rule.scope:
            case Scope.SELF:
                return anomaly.entity == one.entity
            case Scope.BELOW:
                return anomaly.entity in self._graph.below(one.entity)
            case Scope.JOB:
                return True

    def _confidence(self, scored: _Round, one: Hypothesis, others: Sequence[Hypothesis]) -> float:
        top = scored.score(scored.best)
        weights: Mapping[int, float] = {
            id(other): math.exp((scored.score(other) - top) / TEMPERATURE) for other in others
        }
        share = weights[id(one)] / math.fsum(weights.values())
        return min(share, UNKNOWN_CONFIDENCE) if one.fault == "UNKNOWN" else share


def _rules_of(fault: str) -> tuple[Explains, ...]:
    own = tuple(rule for rule in EXPLAINS if rule.fault == fault)
    return own if own or FAULT_BY_ID[fault].severity > 1 else BY_DEFAULT


def _among(other: Hypothesis, chosen: Collection[Hypothesis], *, besides: Hypothesis) -> bool:
    return other is not besides and any(other is one for one in chosen)
