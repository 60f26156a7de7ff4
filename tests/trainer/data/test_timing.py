from __future__ import annotations

from everstep.trainer.data.timing import Activity, StageClock, StageTiming


class Now:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds


def test_every_second_of_a_stage_is_work_or_one_of_two_waits() -> None:
    now = Now()
    clock = StageClock(now)
    now.pass_(7)
    clock.start()
    now.pass_(2)
    with clock.during(Activity.INPUT):
        now.pass_(3)
    clock.count()
    with clock.during(Activity.OUTPUT):
        now.pass_(5)
    now.pass_(1)
    clock.close()
    now.pass_(9)
    assert clock.timing() == StageTiming(busy_s=3, input_wait_s=3, output_wait_s=5, num_items=1)


def test_a_wait_that_goes_on_counts_already() -> None:
    now = Now()
    clock = StageClock(now)
    clock.start()
    with clock.during(Activity.INPUT):
        now.pass_(4)
        assert clock.timing().input_wait_s == 4
        assert clock.doing == (Activity.INPUT, 4)
    assert clock.timing().input_wait_s == 4


def test_timings_of_several_threads_add_up() -> None:
    one = StageTiming(busy_s=1, input_wait_s=2, output_wait_s=3, num_items=4)
    assert one + one == StageTiming(busy_s=2, input_wait_s=4, output_wait_s=6, num_items=8)
