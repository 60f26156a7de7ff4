"""Simulated training: deterministic, checkpointed, broken in the ways that are asked for."""

from __future__ import annotations

import math

from everstep.core.engine import Attempt, RankPlacement, ResumePoint, WorkerState
from everstep.simulator.job import SimJob, SimTraining, loss_of

PLACEMENTS = tuple(RankPlacement(rank=rank, node=f"node-{rank}", local_rank=0) for rank in range(3))


def attempt(number: int = 1, resume: ResumePoint | None = None, skip: tuple[int, ...] = ()) -> Attempt:
    return Attempt(job="demo", number=number, placements=PLACEMENTS, resume=resume, skip_batches=skip)


def begun(**training: float) -> SimJob:
    job = SimJob(training=SimTraining(start_s=0.0, **training), attempt=attempt())  # type: ignore[arg-type]
    job.begin(attempt(), 100, 0.0)
    return job


def test_steps_follow_the_clock_and_the_loss_follows_the_data() -> None:
    job = begun(step_s=0.1)
    job.run(2.0)
    assert job.step == 20
    assert job.losses[20] == loss_of(20, 19)
    assert job.progress().step == 20


def test_an_attempt_that_resumes_repeats_the_same_losses() -> None:
    job = begun()
    job.run(2.0)
    before = dict(job.losses)
    job.begin(attempt(2, ResumePoint(step=15, tier="memory", attempt=1)), 200, 2.0)
    job.run(3.0)
    assert job.progress().attempt == 2
    assert {step: job.losses[step] for step in range(16, 21)} == {step: before[step] for step in range(16, 21)}
    assert job.history[10] == before[10]


def test_skipped_batches_are_left_out_and_poisoned_ones_end_the_attempt() -> None:
    job = begun()
    job.poisoned.add(7)
    job.run(2.0)
    assert (job.step, job.nonfinite) == (7, 7)
    assert {worker.reason for worker in job.workers.values()} == {"nonfinite"}
    job.begin(attempt(2, ResumePoint(step=5, tier="memory", attempt=1), skip=(7,)), 200, 2.0)
    job.run(3.0)
    assert job.batches[8] == 8
    assert all(math.isfinite(loss) for loss in job.losses.values())


def test_every_shard_has_a_buddy_and_old_states_go() -> None:
    job = begun(keep_memory=2)
    job.run(3.0)
    memory = [copy for copy in job.copies if copy.tier == "memory"]
    assert {copy.step for copy in memory} == {25, 30}
    assert {copy.holder for copy in memory if copy.rank == 2} == {"node-2", "node-0"}
    assert {copy.step for copy in job.copies if copy.tier == "disk"} == {10, 20, 30}


def test_a_damaged_or_absent_resume_point_is_refused() -> None:
    job = begun()
    job.run(2.0)
    job.damage(20, "disk", "checksum differs")
    for number, point in (
        (2, ResumePoint(step=20, tier="disk", attempt=1)),
        (3, ResumePoint(step=99, tier="disk", attempt=1)),
    ):
        job.begin(attempt(number, point), 200, 2.0)
        assert {worker.reason for worker in job.workers.values()} == {"checkpoint"}


def test_a_job_ends_with_its_last_step() -> None:
    job = begun(total_steps=12)
    job.run(5.0)
    assert job.step == 12
    assert {worker.state for worker in job.workers.values()} == {WorkerState.EXITED}
    assert {worker.reason for worker in job.workers.values()} == {"success"}
