"""What the first steps must look like before an incident is resolved."""

from __future__ import annotations

import math
from typing import Any

import pytest

from everstep.core.engine import Attempt, RankPlacement, ResumePoint
from everstep.core.progress import JobProgress
from everstep.recovery.canary import Canary, Judgement, Reference, first_end, judge, reference_of

PLACEMENTS = (RankPlacement(rank=0, node="a", local_rank=0),)
REFERENCE = Reference(
    losses={step: 3.0 - step / 100 for step in range(1, 51)},
    batches={step: step - 1 for step in range(1, 51)},
    learning_rate=1e-3,
    step=50,
)


def attempt(resume: int | None = 40, skip: tuple[int, ...] = ()) -> Attempt:
    point = ResumePoint(step=resume, tier="disk", attempt=1) if resume is not None else None
    return Attempt(job="demo", number=2, placements=PLACEMENTS, resume=point, skip_batches=skip)


def progress(upto: int = 43, first: int = 41, **changes: Any) -> JobProgress:
    values: dict[str, Any] = {
        "job": "demo",
        "attempt": 2,
        "step": upto,
        "at": 1.0,
        "losses": {step: 3.0 - step / 100 for step in range(first, upto + 1)},
        "batches": {step: step - 1 for step in range(first, upto + 1)},
        "learning_rate": 1e-3,
    }
    return JobProgress(**{**values, **changes})


def verdict(now: JobProgress | None, of: Attempt | None = None, reference: Reference = REFERENCE) -> Judgement:
    return judge(now, reference, of or attempt(), steps=3)


def test_waits_for_the_new_attempt_and_its_first_step() -> None:
    assert verdict(None).verdict is Canary.WAITING
    assert verdict(progress(attempt=1)).verdict is Canary.WAITING
    assert verdict(progress(step=-1, losses={}, batches={})).verdict is Canary.WAITING
    assert verdict(progress(40)).verdict is Canary.WAITING


def test_good_after_three_equal_steps() -> None:
    assert verdict(progress(41)).verdict is Canary.STEPPED
    assert verdict(progress(43)) == Judgement(verdict=Canary.GOOD, compared=3)


def test_the_first_step_ended_when_it_ended_however_late_one_looks() -> None:
    ends = {41: 10.0, 42: 10.4, 43: 10.8}
    assert first_end(progress(43, at=10.8, ends=ends), attempt()) == 10.0
    assert first_end(progress(43, at=10.8, ends=ends), attempt(resume=None)) == 10.0
    assert first_end(progress(43, at=10.8), attempt()) == 10.8


def test_a_missing_loss_is_waited_for() -> None:
    late = progress(43, losses={41: REFERENCE.losses[41]})
    assert verdict(late).verdict is Canary.STEPPED


def test_a_loop_without_losses_needs_twice_as_many_steps() -> None:
    assert verdict(progress(43, losses={})).verdict is Canary.STEPPED
    assert verdict(progress(46, losses={})).verdict is Canary.GOOD


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_bad(loss: float) -> None:
    result = verdict(progress(42, losses={41: REFERENCE.losses[41], 42: loss}))
    assert (result.verdict, result.why) == (Canary.BAD, "the loss of step 42 is not finite")


def test_a_repeated_step_must_have_the_same_loss() -> None:
    near = REFERENCE.losses[41] * (1 + 5e-5)
    far = REFERENCE.losses[41] * (1 + 2e-4)
    assert verdict(progress(41, losses={41: near})).verdict is Canary.STEPPED
    assert verdict(progress(41, losses={41: far})).verdict is Canary.BAD


def test_steps_beyond_a_skipped_batch_have_nothing_to_be_compared_with() -> None:
    skipping = attempt(skip=(41,))
    moved = progress(43, losses={41: 2.59, 42: 9.0, 43: 9.0}, batches={41: 40, 42: 42, 43: 43})
    assert verdict(moved, skipping) == Judgement(verdict=Canary.GOOD, compared=1)


def test_a_bad_loss_of_the_past_is_no_reference() -> None:
    before = Reference(losses={41: math.nan}, batches={}, step=41)
    assert verdict(progress(43), reference=before).verdict is Canary.GOOD


def test_batches_must_be_those_of_before_in_order_and_not_the_skipped_ones() -> None:
    wrong = verdict(progress(41, batches={41: 45}))
    assert (wrong.verdict, wrong.why) == (Canary.BAD, "step 41 used batch 45 and used 40 before")
    skipped = verdict(progress(41, batches={41: 40}), attempt(skip=(40,)))
    assert skipped.why == "step 41 used batch 40, which was to be skipped"
    back = verdict(progress(43, batches={41: 40, 42: 41, 43: 41}), reference=Reference())
    assert back.why == "step 43 used batch 41 after batch 41"


def test_a_gross_jump_of_the_learning_rate_is_a_state_that_was_not_restored() -> None:
    assert verdict(progress(43, learning_rate=5e-5)).verdict is Canary.BAD
    assert verdict(progress(43, learning_rate=math.nan)).why == "the learning rate is not finite"
    assert verdict(progress(43, learning_rate=0.0)).verdict is Canary.GOOD


def test_a_warm_up_that_is_repeated_is_no_jump() -> None:
    early = progress(3, 1, learning_rate=1e-3 * 3 / 50)
    assert verdict(early, attempt(resume=0)).verdict is Canary.GOOD


def test_where_the_trainer_chose_the_state_itself_the_first_loss_tells_the_start() -> None:
    free = attempt(resume=None)
    assert verdict(progress(42), free).verdict is Canary.STEPPED
    assert verdict(progress(43), free).verdict is Canary.GOOD


def test_the_reference_prefers_the_broken_attempt_s_own_words() -> None:
    before = progress(43)
    reference = reference_of(before, {41: 9.0, 7: 5.0})
    assert reference.losses[41] == before.losses[41]
    assert reference.losses[7] == 5.0
    assert reference_of(None, {7: 5.0}).losses == {7: 5.0}
