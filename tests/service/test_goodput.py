from __future__ import annotations

import pytest

from everstep.service.goodput import Goodput, JobMoment, TimeClass, classify


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (JobMoment(started=False), TimeClass.QUEUE),
        (JobMoment(started=True), TimeClass.RESTART),
        (JobMoment(started=True, step=5), TimeClass.PRODUCTIVE),
        (JobMoment(started=True, step=5, slow=True), TimeClass.SLOW),
        (JobMoment(started=True, step=5, checkpointing=True), TimeClass.CHECKPOINT),
        (JobMoment(started=True, step=5, highest_before=9), TimeClass.RECOMPUTE),
        (JobMoment(started=True, step=9, highest_before=9), TimeClass.PRODUCTIVE),
        (JobMoment(started=True, step=5, late=True), TimeClass.HANG),
        (JobMoment(started=True, step=5, broken=True), TimeClass.HANG),
        (JobMoment(started=True, step=5, late=True, recovering=True), TimeClass.RESTART),
        (JobMoment(started=True, step=5, late=True, ended=True), TimeClass.IDLE),
    ],
)
def test_first_match_wins(moment: JobMoment, expected: TimeClass) -> None:
    assert classify(moment) is expected


def test_every_second_lands_in_exactly_one_class() -> None:
    goodput = Goodput()
    moments = [JobMoment(started=False), JobMoment(started=True), JobMoment(started=True, step=1)]
    for now, moment in enumerate([moments[0], *moments]):
        goodput.account("demo", moment, world_size=3, now=float(now))
    seconds = goodput.seconds()["demo"]
    assert sum(seconds.values()) == 9.0
    assert seconds["productive"] == seconds["queue"] == seconds["restart"] == 3.0
    assert goodput.ratio("demo") == pytest.approx(1 / 3)
    assert goodput.ratio("other") is None
