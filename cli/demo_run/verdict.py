"""From evidence to verdict, pure: what was found, what it cost, and whether the job came back whole.

Every number is computed from what the processes left (incidents of the service, step and resume lines of the trainer,
manifests read before the injection), never from what one of them says about its own success alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from everstep.cli.demo_run.scenario import JOB, SCENARIOS, VICTIM_RANK, DemoFault
from everstep.core.actions import ActionKind, Outcome
from everstep.core.events import Entity, Incident, IncidentState

LOSS_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """One finished step as rank 0 wrote it; `at` is its end in seconds since the epoch."""

    step: int
    attempt: int
    batch: int
    loss: float
    sample_hash: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeLine:
    """Where an attempt began and when; step 0 without a tier is a fresh start."""

    attempt: int
    step: int
    tier: str
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What was done at `at`. The newest committed step is read from manifests just before; `damaged` steps follow."""

    at: float
    culprit: Entity
    newest_committed: int
    newest_good: int
    damaged: tuple[int, ...] = ()
    batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """All that one demo run left. Placements map rank to node, before the injection and at the end."""

    fault: DemoFault
    seed: int
    total_steps: int
    injection: Injection | None
    incidents: tuple[Incident, ...]
    steps: tuple[StepLine, ...]
    resumes: tuple[ResumeLine, ...]
    reference: tuple[StepLine, ...]
    placements_before: Mapping[int, str]
    placements_after: Mapping[int, str]
    cordoned: frozenset[str] = frozenset()
    lost_nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One demand of the table with what was seen."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The numbers of one run; times in seconds from the injection, None where there is nothing to measure."""

    fault: DemoFault
    seed: int
    expected: Entity | None
    culprit: Entity | None
    fault_kind: str | None
    cause_rank: int | None
    confidence: float | None
    mttd_s: float | None
    mttr_s: float | None
    detect_steps: int | None
    lost_steps: int
    repeated_steps: int
    resumed_from: ResumeLine | None
    actions: tuple[str, ...]
    final_loss: float | None
    reference_loss: float | None
    sample_hash_equal: bool
    false_incidents: int
    world: int
    step_median_s: float | None
    breakdown: Mapping[str, float]
    checks: tuple[Check, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> tuple[str, ...]:
        return tuple(f"{check.name}: {check.detail}" for check in self.checks if not check.ok)

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints; NaN and infinity become null."""
        return {
            "fault": self.fault.value,
            "seed": self.seed,
            "expected": _entity(self.expected),
            "culprit": _entity(self.culprit),
            "fault_kind": self.fault_kind,
            "cause_rank": self.cause_rank,
            "confidence": _number(self.confidence),
            "mttd_s": _number(self.mttd_s),
            "mttr_s": _number(self.mttr_s),
            "detect_steps": self.detect_steps,
            "lost_steps": self.lost_steps,
            "repeated_steps": self.repeated_steps,
            "resumed_from": None
            if self.resumed_from is None
            else {"step": self.resumed_from.step, "tier": self.resumed_from.tier},
            "actions": list(self.actions),
            "final_loss": _number(self.final_loss),
            "reference_loss": _number(self.reference_loss),
            "sample_hash_equal": self.sample_hash_equal,
            "false_incidents": self.false_incidents,
            "world": self.world,
            "step_median_s": _number(self.step_median_s),
            "breakdown": {name: _number(at) for name, at in self.breakdown.items()},
            "failures": list(self.failures),
            "ok": self.ok,
        }


def _entity(entity: Entity | None) -> dict[str, str] | None:
    return None if entity is None else {"kind": entity.kind.value, "name": entity.name}


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def newest_by_step(lines: tuple[StepLine, ...]) -> dict[int, StepLine]:
    """Each step as its last attempt left it."""
    newest: dict[int, StepLine] = {}
    for line in lines:
        if line.step not in newest or line.attempt >= newest[line.step].attempt:
            newest[line.step] = line
    return newest


def main_incident(evidence: RunEvidence) -> Incident | None:
    """The first incident that opened after the injection; any other one is false."""
    if evidence.injection is None:
        return None
    since = [incident for incident in evidence.incidents if incident.opened >= evidence.injection.at]
    return min(since, key=lambda incident: incident.opened, default=None)


def judge(evidence: RunEvidence) -> Verdict:
    """The verdict on one run. Deterministic; reads nothing but its argument."""
    incident = main_incident(evidence)
    injection = evidence.injection
    first = incident.causes[0] if incident is not None and incident.causes else None
    resume = _recovery_resume(evidence, incident)
    final = newest_by_step(evidence.steps).get(evidence.total_steps)
    reference = newest_by_step(evidence.reference).get(evidence.total_steps)
    return Verdict(
        fault=evidence.fault,
        seed=evidence.seed,
        expected=injection.culprit if injection is not None else None,
        culprit=first.entity if first is not None else None,
        fault_kind=first.fault if first is not None else None,
        cause_rank=_cause_rank(injection, incident),
        confidence=first.confidence if first is not None else None,
        mttd_s=incident.opened - injection.at if incident is not None and injection is not None else None,
        mttr_s=_recovery_time(evidence, incident),
        detect_steps=_steps_until_found(evidence, incident),
        lost_steps=_lost_steps(injection, resume),
        repeated_steps=_repeated_steps(evidence, resume),
        resumed_from=resume,
        actions=_actions(incident),
        final_loss=final.loss if final is not None else None,
        reference_loss=reference.loss if reference is not None else None,
        sample_hash_equal=final is not None and reference is not None and final.sample_hash == reference.sample_hash,
        false_incidents=len(evidence.incidents) - (incident is not None),
        world=len(evidence.placements_after),
        step_median_s=_median_step(evidence),
        breakdown=_breakdown(evidence, incident),
        checks=_checks(evidence, incident, resume, final, reference),
    )


def _cause_rank(injection: Injection | None, incident: Incident | None) -> int | None:
    if injection is None or incident is None:
        return None
    for place, cause in enumerate(incident.causes, start=1):
        if cause.entity == injection.culprit:
            return place
    return None


def _actions(incident: Incident | None) -> tuple[str, ...]:
    if incident is None:
        return ()
    return tuple(done.action.kind.value for done in incident.actions if done.outcome is not Outcome.SKIPPED)


def _recovery_resume(evidence: RunEvidence, incident: Incident | None) -> ResumeLine | None:
    """Where the attempt after the incident's began."""
    if incident is None:
        return None
    later = [line for line in evidence.resumes if line.attempt > incident.attempt]
    return min(later, key=lambda line: line.attempt, default=None)


def _first_good_step(evidence: RunEvidence, incident: Incident | None) -> StepLine | None:
    if incident is None:
        return None
    good = [line for line in evidence.steps if line.attempt > incident.attempt and math.isfinite(line.loss)]
    return min(good, key=lambda line: line.at, default=None)


def _recovery_time(evidence: RunEvidence, incident: Incident | None) -> float | None:
    good = _first_good_step(evidence, incident)
    if good is None or evidence.injection is None:
        return None
    return good.at - evidence.injection.at


def _steps_until_found(evidence: RunEvidence, incident: Incident | None) -> int | None:
    """Steps that ended between the injection and the opening of the incident."""
    injection = evidence.injection
    if incident is None or injection is None:
        return None
    return sum(injection.at < line.at <= incident.opened for line in evidence.steps)


def _lost_steps(injection: Injection | None, resume: ResumeLine | None) -> int:
    """Steps that were committed before the injection and that the job did not resume from."""
    if injection is None or resume is None:
        return 0
    return max(0, injection.newest_committed - resume.step)


def _repeated_steps(evidence: RunEvidence, resume: ResumeLine | None) -> int:
    if resume is None:
        return 0
    done = [line.step for line in evidence.steps if line.attempt < resume.attempt and math.isfinite(line.loss)]
    if evidence.injection is not None:
        done.append(evidence.injection.newest_committed)  # a step may be committed and not journalled yet
    return max(0, max(done, default=0) - resume.step)


def _median_step(evidence: RunEvidence) -> float | None:
    """Median distance of consecutive step ends in the first attempt before the injection."""
    until = evidence.injection.at if evidence.injection is not None else math.inf
    first = [line for line in evidence.steps if line.attempt == 1 and line.at <= until]
    gaps = [b.at - a.at for a, b in pairwise(first) if b.step == a.step + 1]
    return median(gaps) if gaps else None


def _breakdown(evidence: RunEvidence, incident: Incident | None) -> dict[str, float]:
    """Seconds from the injection to each mark on the way back."""
    if incident is None or evidence.injection is None:
        return {}
    t0 = evidence.injection.at
    good = _first_good_step(evidence, incident)
    marks = {"found": incident.opened, "diagnosed": incident.diagnosed}
    resume = _recovery_resume(evidence, incident)
    marks["restored"] = resume.at if resume is not None else None
    marks |= {"first_good_step": good.at if good is not None else None, "verified": incident.closed}
    return {name: at - t0 for name, at in marks.items() if at is not None}


def _checks(
    evidence: RunEvidence,
    incident: Incident | None,
    resume: ResumeLine | None,
    final: StepLine | None,
    reference: StepLine | None,
) -> tuple[Check, ...]:
    always = (
        _check_complete(evidence),
        _check_equal(final, reference),
        _check_placement(evidence),
        _check_cordons(evidence),
    )
    if evidence.injection is None:
        return (*always, _check_quiet(evidence, None))
    return (
        _check_found(evidence.injection, incident),
        _check_actions(evidence, incident),
        _check_closed(incident),
        _check_lost(evidence.injection, resume),
        *always,
        _check_quiet(evidence, incident),
    )


def _check_found(injection: Injection, incident: Incident | None) -> Check:
    name = "right culprit first"
    if incident is None:
        return Check(name=name, ok=False, detail="no incident opened after the injection")
    if not incident.causes:
        return Check(name=name, ok=False, detail="the incident has no cause")
    first = incident.causes[0]
    return Check(name=name, ok=first.entity == injection.culprit, detail=f"{first.entity} ({first.fault})")


def _check_actions(evidence: RunEvidence, incident: Incident | None) -> Check:
    """The verdict and the actions of the table, all succeeded, and nobody isolated who must not be."""
    name = "right verdict and actions"
    if incident is None:
        return Check(name=name, ok=False, detail="no incident")
    scenario = SCENARIOS[evidence.fault]
    done = {one.action.kind for one in incident.actions if one.outcome is Outcome.SUCCEEDED}
    kinds = {one.action.kind for one in incident.actions}
    verdict = incident.causes[0].fault if incident.causes else "none"
    missing = sorted(kind.value for kind in scenario.actions if kind not in done)
    isolates = ActionKind.ISOLATE_NODE in kinds and ActionKind.ISOLATE_NODE not in scenario.actions
    problems = [
        *(
            [f"verdict {verdict} instead of {' or '.join(scenario.verdicts)}"]
            if verdict not in scenario.verdicts
            else []
        ),
        *([f"not done: {', '.join(missing)}"] if missing else []),
        *(["a node was isolated"] if isolates else []),
    ]
    return Check(
        name=name, ok=not problems, detail="; ".join(problems) or ", ".join(sorted(kind.value for kind in done))
    )


def _check_closed(incident: Incident | None) -> Check:
    state = incident.state.value if incident is not None else "no incident"
    ok = incident is not None and incident.state is IncidentState.RESOLVED
    return Check(name="canary passed, incident resolved", ok=ok, detail=state)


def _check_lost(injection: Injection, resume: ResumeLine | None) -> Check:
    """Resumed from the newest good committed step or later; later than a damaged one only by damage."""
    name = "nothing committed was lost"
    if resume is None:
        return Check(name=name, ok=False, detail="the job was not resumed")
    said = f"resumed from step {resume.step} ({resume.tier or 'fresh start'}), newest good step {injection.newest_good}"
    ok = resume.step >= injection.newest_good and resume.step not in injection.damaged
    return Check(name=name, ok=ok, detail=said)


def _check_complete(evidence: RunEvidence) -> Check:
    finished = {step for step, line in newest_by_step(evidence.steps).items() if math.isfinite(line.loss)}
    finished |= {line.step for line in evidence.resumes}  # committed, but killed before its journal line
    missing = [step for step in range(1, evidence.total_steps + 1) if step not in finished]
    detail = f"{len(missing)} steps missing, first {missing[0]}" if missing else f"{evidence.total_steps} of them"
    return Check(name="every step done", ok=not missing, detail=detail)


def _check_equal(final: StepLine | None, reference: StepLine | None) -> Check:
    name = "same end as the uninterrupted run"
    if final is None or reference is None:
        return Check(name=name, ok=False, detail="no last step of the " + ("job" if final is None else "reference run"))
    apart = abs(final.loss - reference.loss)
    same_data = final.sample_hash == reference.sample_hash
    ok = apart <= LOSS_TOLERANCE and same_data
    data = "same samples" if same_data else "other samples"
    return Check(name=name, ok=ok, detail=f"losses {apart:.1e} apart, {data}")


def _check_placement(evidence: RunEvidence) -> Check:
    """Only a rank whose node is at fault may have moved, and then it must have."""
    moved = {rank for rank, node in evidence.placements_before.items() if evidence.placements_after.get(rank) != node}
    expected = {VICTIM_RANK} if SCENARIOS[evidence.fault].moved else set()
    names = ", ".join(f"{JOB}/{rank}" for rank in sorted(moved)) or "no rank"
    return Check(name="nobody else was moved", ok=moved == expected, detail=f"{names} moved")


def _check_cordons(evidence: RunEvidence) -> Check:
    allowed = evidence.lost_nodes if SCENARIOS[evidence.fault].cordoned else frozenset()
    ok = evidence.cordoned <= allowed
    return Check(name="no healthy node is out", ok=ok, detail=", ".join(sorted(evidence.cordoned)) or "none cordoned")


def _check_quiet(evidence: RunEvidence, incident: Incident | None) -> Check:
    false = [one for one in evidence.incidents if incident is None or one.id != incident.id]
    detail = "; ".join(str(one.causes[0].entity) if one.causes else one.id for one in false) or "none"
    return Check(name="no false incident", ok=not false, detail=detail)
