"""The first steps after a recovery, compared with those before the fault: only then is an incident resolved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from everstep.core.engine import Attempt
from everstep.core.progress import JobProgress

LOSS_TOLERANCE = 1e-4  # relative; equal steps on equal data differ only by the order of sums
RATE_FACTOR = 10.0  # only the newest rate is known, not that of each step, so that only gross jumps can be told


class Canary(StrEnum):
    WAITING = "waiting"
    STEPPED = "stepped"
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the earlier attempts reported of each step."""

    losses: Mapping[int, float] = field(default_factory=dict)
    batches: Mapping[int, int] = field(default_factory=dict)
    learning_rate: float = 0.0
    step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    verdict: Canary
    why: str = ""
    compared: int = 0


def reference_of(before: JobProgress | None, history: Mapping[int, float]) -> Reference:
    if before is None:
        return Reference(losses=dict(history))
    return Reference(
        losses={**history, **before.losses},
        batches=dict(before.batches),
        learning_rate=before.learning_rate,
        step=before.step,
    )


def judge(progress: JobProgress | None, reference: Reference, attempt: Attempt, *, steps: int) -> Judgement:
    """WAITING before the first step, STEPPED while fewer than `steps` good ones are known, else GOOD or BAD."""
    start = _start(progress, attempt)
    if progress is None or progress.attempt != attempt.number or progress.step <= start:
        return Judgement(verdict=Canary.WAITING)
    last = min(progress.step, start + steps)
    fork = _fork(reference, attempt)
    compared = 0
    for step in range(start + 1, last + 1):
        why = _problem(step, progress, reference, attempt, fork)
        if why:
            return Judgement(verdict=Canary.BAD, why=why, compared=compared)
        compared += step in reference.losses and step in progress.losses and step < fork
    why = _rate_problem(progress, reference)
    if why:
        return Judgement(verdict=Canary.BAD, why=why, compared=compared)
    return Judgement(verdict=Canary.GOOD if _complete(progress, start, steps) else Canary.STEPPED, compared=compared)


def first_end(progress: JobProgress, attempt: Attempt) -> float:
    """When the attempt's first step ended; where the source keeps no ends, when its newest did."""
    return progress.ends.get(_start(progress, attempt) + 1, progress.at)


def _start(progress: JobProgress | None, attempt: Attempt) -> int:
    """The step before the first one; where the trainer chose the state itself, the first known loss tells."""
    if attempt.resume is not None:
        return attempt.resume.step
    return min(progress.losses, default=1) - 1 if progress is not None else 0


def _complete(progress: JobProgress, start: int, steps: int) -> bool:
    """All canary steps are done and their losses known; a loop that reports no loss gets twice as many steps."""
    if not progress.losses:
        return progress.step >= start + 2 * steps
    return progress.step >= start + steps and start + steps in progress.losses


def _fork(reference: Reference, attempt: Attempt) -> float:
    """The first step that sees other data than before, because its batch is now skipped."""
    skipped = [step for step, batch in reference.batches.items() if batch in attempt.skip_batches]
    return min(skipped, default=math.inf)


def _problem(step: int, progress: JobProgress, reference: Reference, attempt: Attempt, fork: float) -> str:
    loss, before = progress.losses.get(step), reference.losses.get(step)
    if loss is not None and not math.isfinite(loss):
        return f"the loss of step {step} is not finite"
    comparable = before is not None and math.isfinite(before) and step < fork
    if comparable and loss is not None and before is not None and not _equal(loss, before):
        return f"the loss of step {step} is {loss:.6g} and was {before:.6g} before"
    return _batch_problem(step, progress, reference, attempt, fork)


def _equal(loss: float, before: float) -> bool:
    return math.isclose(loss, before, rel_tol=LOSS_TOLERANCE)


def _batch_problem(step: int, progress: JobProgress, reference: Reference, attempt: Attempt, fork: float) -> str:
    batch, before = progress.batches.get(step), reference.batches.get(step)
    if batch is None:
        return ""
    if batch in attempt.skip_batches:
        return f"step {step} used batch {batch}, which was to be skipped"
    if before is not None and step < fork and batch != before:
        return f"step {step} used batch {batch} and used {before} before"
    previous = progress.batches.get(step - 1)
    if previous is not None and batch <= previous:
        return f"step {step} used batch {batch} after batch {previous}"
    return ""


def _rate_problem(progress: JobProgress, reference: Reference) -> str:
    now, before = progress.learning_rate, reference.learning_rate
    if not math.isfinite(now):
        return "the learning rate is not finite"
    if before <= 0 or now <= 0:
        return ""
    warming = min(1.0, progress.step / reference.step) if reference.step > 0 else 1.0
    low, high = warming / RATE_FACTOR, RATE_FACTOR * RATE_FACTOR  # a decay towards zero is steep at its end
    if not low <= now / before <= high:
        return f"the learning rate is {now:.6g} and was {before:.6g} before"
    return ""
