from __future__ import annotations

from everstep.core.events import Direction
from everstep.detector.progress import Progress, StepDeadline, judge_progress


def deadline(*durations: float) -> StepDeadline:
    made = StepDeadline(factor=3, floor_s=1.5, startup_s=120, warmup=10)
    for duration_s in durations:
        made.learn(duration_s)
    return made


def progress(last_at: float, step: int = 40, state: str = "steady") -> Progress:
    return Progress(job="demo", last_at=last_at, last_steps={0: step, 1: step}, state=state)


def test_armed_from_second_zero() -> None:
    assert judge_progress(progress(0.0, step=0), deadline(), stepped=False, now=119.0) is None
    late = judge_progress(progress(0.0, step=0), deadline(), stepped=False, now=121.0)
    assert late is not None
    assert late.evidence["phase"] == "startup"


def test_startup_counts_before_the_first_step_even_when_learned() -> None:
    assert judge_progress(progress(0.0, step=0), deadline(*[0.2] * 20), stepped=False, now=60.0) is None


def test_floor_and_factor() -> None:
    assert deadline(*[0.2] * 20).seconds() == 1.5
    assert deadline(*[2.0] * 20).seconds() == 6.0


def test_stall_names_ranks_and_onset() -> None:
    stalled = judge_progress(progress(100.0), deadline(*[0.2] * 20), stepped=True, now=102.0)
    assert stalled is not None
    assert stalled.direction is Direction.STOP
    assert stalled.onset_earliest == 100.0
    assert stalled.evidence["last_steps"] == {"0": 40, "1": 40}
    assert stalled.evidence["median_step_s"] == 0.2


def test_a_hang_does_not_teach() -> None:
    made = deadline(*[0.2] * 20)
    made.learn(60.0)
    assert made.median_step_s == 0.2
    assert made.steps == 20


def test_long_states_have_their_own_deadline() -> None:
    made = deadline(*[0.2] * 20)
    for duration_s in (1.0, 1.2, 1.1):
        made.learn(duration_s, "checkpoint")
    assert abs(made.seconds("checkpoint") - 3.3) < 1e-9
    assert made.seconds("evaluation") == 1.5
    assert made.seconds() == 1.5
