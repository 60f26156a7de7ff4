from __future__ import annotations

import threading

from everstep.service.views import KEPT_STEPS, AttemptView, JobView, JobViews


def views(world_size: int = 2) -> JobViews:
    return JobViews(threading.RLock(), lambda _: world_size, lambda _: 0)


def test_progress_is_what_every_rank_has_finished() -> None:
    made = views()
    view = made.job("demo").attempt(1)
    assert made.progress("demo").step == -1
    view.add_step(0, 1, 10.0)
    assert made.progress("demo").step == -1
    view.add_step(1, 1, 10.5)
    view.add_step(0, 2, 11.0)
    progress = made.progress("demo")
    assert (progress.step, progress.at, progress.attempt) == (1, 10.5, 1)
    assert progress.ends == {1: 10.5}
    view.add_step(1, 2, 11.2)
    assert made.progress("demo").ends == {1: 10.5, 2: 11.2}


def test_unknown_jobs_have_no_progress() -> None:
    assert views().progress("demo") is None
    assert views().history("demo") == {}


def test_losses_of_earlier_attempts_are_history() -> None:
    made = views()
    first = made.job("demo").attempt(1)
    for step, at in ((1, 1.0), (2, 2.0)):
        first.add_step(0, step, at)
        first.on_loss(0, "", at, 3.0 - step)
    assert made.history("demo") == {}
    second = made.job("demo").attempt(2)
    second.add_step(0, 2, 9.0)
    second.on_loss(0, "", 9.0, 1.0)
    assert made.history("demo") == {1: 2.0, 2: 1.0}
    assert made.progress("demo").losses == {2: 1.0}
    assert made.job("demo").highest_step == 2


def test_a_step_counts_once() -> None:
    view = AttemptView(job="demo", number=1)
    view.add_step(0, 1, 10.0)
    view.add_step(0, 1, 12.0)
    assert view.ranks[0].last_step_at == 10.0
    view.add_step(1, 1, 10.4)
    view.add_step(0, 2, 10.2)
    assert [(state, round(duration_s, 6)) for state, duration_s in view.fresh] == [("steady", 0.2)]


def test_old_steps_are_forgotten() -> None:
    view = AttemptView(job="demo", number=1)
    for step in range(1, 3 * KEPT_STEPS):
        view.add_step(0, step, float(step))
        view.on_loss(0, "", float(step), 1.0)
        view.on_compute(0, "", float(step), 0.1)
    for held in (view.losses, view.compute, view.ranks[0].ends, view.ranks[0].steps_at):
        assert len(held) <= KEPT_STEPS + 2
        assert max(held) == 3 * KEPT_STEPS - 1


def test_worker_states_keep_their_first_sight() -> None:
    view = AttemptView(job="demo", number=1)
    view.on_worker_state(0, "running", 1.0, 1.0)
    view.on_worker_state(0, "running", 2.0, 1.0)
    view.on_worker_state(0, "killed", 3.0, 0.0)
    view.on_worker_state(0, "killed", 3.5, 1.0)
    view.on_worker_state(0, "killed", 4.0, 1.0)
    view.on_exit_code(0, "", 4.0, -9.0)
    view.on_exit_reason(0, "signal", 4.0, 1.0)
    (worker,) = view.workers()
    assert (worker.state, worker.since, worker.alive_at) == ("killed", 3.5, 2.0)
    assert (worker.exit_code, worker.reason) == (-9, "signal")


def test_few_attempts_are_kept() -> None:
    job = JobView("demo")
    for number in range(1, 20):
        job.attempt(number)
    assert sorted(job.attempts) == [16, 17, 18, 19]
