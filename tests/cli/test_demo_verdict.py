"""The demo's verdict on hand-written runs: what must pass, and each way in which it must not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from everstep.cli.demo_run.scenario import SCENARIOS, DemoFault
from everstep.cli.demo_run.verdict import (
    Injection,
    ResumeLine,
    RunEvidence,
    StepLine,
    judge,
)
from everstep.core.actions import Action, ActionKind, Outcome, PlannedAction
from everstep.core.events import Entity, EntityKind, Incident, IncidentState, RootCause

T0 = 1000.0
TOTAL = 40
CULPRITS = {
    DemoFault.KILL_PROCESS: Entity(kind=EntityKind.RANK, name="demo/1"),
    DemoFault.HANG_PROCESS: Entity(kind=EntityKind.RANK, name="demo/1"),
    DemoFault.KILL_NODE: Entity(kind=EntityKind.NODE, name="node-1"),
    DemoFault.NAN_LOSS: Entity(kind=EntityKind.BATCH, name="demo/20"),
    DemoFault.SLOW_RANK: Entity(kind=EntityKind.RANK, name="demo/1"),
    DemoFault.CORRUPT_CHECKPOINT: Entity(kind=EntityKind.CHECKPOINT, name="demo/step-20"),
}
HOME = {0: "node-0", 1: "node-1", 2: "node-2"}
MOVED = {**HOME, 1: "node-3"}


def steps(first: int, last: int, *, attempt: int, start: float, every: float = 0.1) -> tuple[StepLine, ...]:
    return tuple(
        StepLine(
            step=step,
            attempt=attempt,
            batch=step - 1,
            loss=5.0 - step / 100,
            sample_hash=f"h{step}",
            at=start + every * (step - first),
        )
        for step in range(first, last + 1)
    )


def incident(fault: DemoFault) -> Incident:
    scenario = SCENARIOS[fault]
    return Incident(
        id="i1",
        job="demo",
        attempt=1,
        opened=T0 + 0.5,
        onset=T0,
        state=IncidentState.RESOLVED,
        causes=(RootCause(entity=CULPRITS[fault], fault=scenario.verdicts[0], confidence=0.9),),
        actions=tuple(
            PlannedAction(
                action=Action(kind=kind, target="demo"),
                outcome=Outcome.SUCCEEDED,
                started=T0 + 0.6,
                ended=T0 + 1.0,
            )
            for kind in scenario.actions
        ),
        diagnosed=T0 + 0.55,
        recovered=T0 + 3.0,
        closed=T0 + 3.5,
    )


def healed(fault: DemoFault) -> RunEvidence:
    """A run that broke at step 20, resumed from step 20 (or 10, where the copies of 11 to 20 were damaged)."""
    scenario = SCENARIOS[fault]
    damaged = (19, 20) if fault is DemoFault.CORRUPT_CHECKPOINT else ()
    good = 10 if damaged else 20
    return RunEvidence(
        fault=fault,
        seed=1,
        total_steps=TOTAL,
        injection=Injection(
            at=T0,
            culprit=CULPRITS[fault],
            newest_committed=20,
            newest_good=good,
            damaged=damaged,
            batch=20 if fault is DemoFault.NAN_LOSS else None,
        ),
        incidents=(incident(fault),),
        steps=(
            *steps(1, 20, attempt=1, start=T0 - 2.0),
            *steps(good + 1, TOTAL, attempt=2, start=T0 + 3.0),
        ),
        resumes=(
            ResumeLine(attempt=1, step=0, tier=""),
            ResumeLine(attempt=2, step=good, tier="disk" if damaged else "memory"),
        ),
        reference=steps(1, TOTAL, attempt=1, start=T0 + 50),
        placements_before=HOME,
        placements_after=MOVED if scenario.moved else HOME,
        cordoned=frozenset({"node-1"}) if scenario.cordoned else frozenset(),
        lost_nodes=frozenset({"node-1"}) if scenario.cordoned else frozenset(),
    )


def quiet() -> RunEvidence:
    return replace(
        healed(DemoFault.KILL_PROCESS),
        fault=DemoFault.NONE,
        injection=None,
        incidents=(),
        steps=steps(1, TOTAL, attempt=1, start=T0),
        resumes=(ResumeLine(attempt=1, step=0, tier=""),),
    )


@pytest.mark.parametrize("fault", list(CULPRITS))
def test_a_healed_run_is_ok_with_the_right_numbers(fault: DemoFault) -> None:
    verdict = judge(healed(fault))
    assert verdict.failures == ()
    assert verdict.ok
    assert verdict.culprit == verdict.expected == CULPRITS[fault]
    assert verdict.cause_rank == 1
    assert verdict.mttd_s == pytest.approx(0.5)
    assert verdict.mttr_s == pytest.approx(3.0)
    assert verdict.false_incidents == 0
    assert verdict.step_median_s == pytest.approx(0.1)
    assert verdict.final_loss == verdict.reference_loss == pytest.approx(4.6)


def test_a_quiet_run_is_ok_and_measures_nothing() -> None:
    verdict = judge(quiet())
    assert verdict.ok
    assert verdict.expected is None
    assert verdict.mttd_s is None
    assert verdict.mttr_s is None


def test_an_incident_in_a_quiet_run_is_false() -> None:
    verdict = judge(replace(quiet(), incidents=(incident(DemoFault.KILL_PROCESS),)))
    assert not verdict.ok
    assert verdict.false_incidents == 1


def test_damaged_copies_cost_what_they_held_and_no_more() -> None:
    run = healed(DemoFault.CORRUPT_CHECKPOINT)
    verdict = judge(run)
    assert (verdict.lost_steps, verdict.repeated_steps) == (10, 10)
    assert verdict.resumed_from == ResumeLine(attempt=2, step=10, tier="disk")
    older = replace(run, resumes=(run.resumes[0], ResumeLine(attempt=2, step=5, tier="disk")))
    assert any("nothing committed was lost" in failure for failure in judge(older).failures)


def test_resuming_from_a_damaged_step_is_not_ok() -> None:
    run = healed(DemoFault.CORRUPT_CHECKPOINT)
    trusted = replace(run, resumes=(run.resumes[0], ResumeLine(attempt=2, step=20, tier="memory")))
    assert not judge(trusted).ok


def test_a_step_committed_before_the_fault_and_not_resumed_from_is_lost() -> None:
    run = healed(DemoFault.KILL_PROCESS)
    back = replace(run, resumes=(run.resumes[0], ResumeLine(attempt=2, step=17, tier="memory")))
    verdict = judge(back)
    assert verdict.lost_steps == 3
    assert verdict.repeated_steps == 3
    assert not verdict.ok


def test_the_wrong_culprit_first_is_not_ok_and_its_rank_is_told() -> None:
    run = healed(DemoFault.KILL_PROCESS)
    right = run.incidents[0].causes[0]
    wrong = RootCause(entity=Entity(kind=EntityKind.RANK, name="demo/0"), fault="SOFTWARE", confidence=0.95)
    verdict = judge(replace(run, incidents=(replace(run.incidents[0], causes=(wrong, right)),)))
    assert not verdict.ok
    assert verdict.cause_rank == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": IncidentState.ESCALATED}, "canary passed"),
        ({"actions": ()}, "not done: restart_process, rollback_checkpoint"),
        ({"causes": ()}, "the incident has no cause"),
    ],
)
def test_an_incident_that_did_not_do_its_work_is_not_ok(change: dict[str, object], words: str) -> None:
    run = healed(DemoFault.KILL_PROCESS)
    broken = replace(run, incidents=(replace(run.incidents[0], **change),))  # type: ignore[arg-type]
    assert words in "; ".join(judge(broken).failures)


def test_isolating_a_node_for_a_poisoned_batch_is_not_ok() -> None:
    run = healed(DemoFault.NAN_LOSS)
    extra = PlannedAction(action=Action(kind=ActionKind.ISOLATE_NODE, target="node node-1"), outcome=Outcome.SUCCEEDED)
    touched = replace(run.incidents[0], actions=(*run.incidents[0].actions, extra))
    assert "a node was isolated" in "; ".join(judge(replace(run, incidents=(touched,))).failures)


def test_a_missing_or_non_finite_step_is_told() -> None:
    run = healed(DemoFault.KILL_PROCESS)
    assert "every step done" in judge(replace(run, steps=run.steps[:-1])).failures[0]
    bad = replace(run.steps[-5], loss=math.nan)
    assert not judge(replace(run, steps=(*run.steps[:-5], bad, *run.steps[-4:]))).ok


def test_a_step_that_was_resumed_from_is_done_even_when_nobody_wrote_it_down() -> None:
    run = healed(DemoFault.KILL_PROCESS)
    unwritten = tuple(line for line in run.steps if line.step != 20)
    assert judge(replace(run, steps=unwritten)).ok


def test_another_loss_or_other_samples_than_the_reference_are_not_ok() -> None:
    run = healed(DemoFault.KILL_PROCESS)
    last = run.reference[-1]
    assert judge(replace(run, reference=(*run.reference[:-1], replace(last, loss=last.loss + 5e-7)))).ok
    assert not judge(replace(run, reference=(*run.reference[:-1], replace(last, loss=last.loss + 2e-6)))).ok
    assert not judge(replace(run, reference=(*run.reference[:-1], replace(last, sample_hash="x")))).ok


def test_moving_or_cordoning_anybody_else_is_not_ok() -> None:
    slow = healed(DemoFault.SLOW_RANK)
    assert not judge(replace(slow, placements_after=HOME)).ok
    assert not judge(replace(slow, placements_after={**MOVED, 2: "node-4"})).ok
    assert not judge(replace(slow, cordoned=frozenset({"node-1"}))).ok
    kill = healed(DemoFault.KILL_PROCESS)
    assert not judge(replace(kill, placements_after=MOVED)).ok
    node = healed(DemoFault.KILL_NODE)
    assert not judge(replace(node, cordoned=frozenset({"node-1", "node-2"}))).ok


def test_a_fault_that_nobody_found_is_not_ok() -> None:
    verdict = judge(replace(healed(DemoFault.HANG_PROCESS), incidents=()))
    assert not verdict.ok
    assert verdict.culprit is None
    assert "no incident opened after the injection" in "; ".join(verdict.failures)


def test_steps_until_found_are_those_that_ended_between_injection_and_incident() -> None:
    run = healed(DemoFault.SLOW_RANK)
    went_on = replace(run, steps=(*run.steps, *steps(21, 23, attempt=1, start=T0 + 0.2)))
    assert judge(went_on).detect_steps == 3


def test_the_json_object_holds_what_the_issue_names() -> None:
    found = judge(healed(DemoFault.KILL_PROCESS)).as_json()
    named = {"fault", "expected", "culprit", "fault_kind", "cause_rank", "confidence", "mttd_s", "mttr_s"}
    named |= {"lost_steps", "repeated_steps", "actions", "final_loss", "reference_loss", "false_incidents", "ok"}
    assert named <= found.keys()
    assert found["culprit"] == {"kind": "rank", "name": "demo/1"}
    assert found["actions"] == ["restart_process", "rollback_checkpoint"]
