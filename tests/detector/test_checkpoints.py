from __future__ import annotations

from everstep.detector.checkpoints import judge_checkpoint_age

COMMITS = [(10, 1.0), (20, 2.0), (30, 3.0)]


def test_young_checkpoints_are_fine() -> None:
    assert judge_checkpoint_age("demo", "disk", COMMITS, step=60) is None
    assert judge_checkpoint_age("demo", "disk", COMMITS[:2], step=500) is None


def test_an_old_checkpoint_is_told() -> None:
    old = judge_checkpoint_age("demo", "disk", COMMITS, step=61)
    assert old is not None
    assert old.detector == "checkpoint_age"
    assert old.evidence == {"tier": "disk", "interval_steps": 10, "behind_steps": 31}
    assert old.onset_latest == 3.0
