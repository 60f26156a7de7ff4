from __future__ import annotations

from collections.abc import Sequence

import pytest

from everstep.core.engine import ResumePoint
from everstep.trainer.checkpoint.choice import CheckpointError, Choice, DiskCopy, HeldShard, Inventory, choose
from everstep.trainer.checkpoint.fence import Lineage


def good(_: DiskCopy) -> str:
    return ""


def damaged(_: DiskCopy) -> str:
    return "it is damaged"


def _shards(step: int, pairs: str, *, attempt: int = 1, world_size: int = 2, problem: str = "") -> list[HeldShard]:
    """`pairs` "01 10" means: shard 0 held by rank 1, shard 1 held by rank 0."""
    return [
        HeldShard(
            attempt=attempt,
            step=step,
            shard=int(shard),
            world_size=world_size,
            size=1,
            holder=int(holder),
            problem=problem,
        )
        for shard, holder in pairs.split()
    ]


def _inventory(
    shards: Sequence[HeldShard], disk: Sequence[tuple[int, int]] = (), lineage: Lineage | None = None
) -> Inventory:
    copies = [DiskCopy(attempt=attempt, step=step) for attempt, step in disk]
    return Inventory(world_size=2, shards=shards, disk=copies, lineage=lineage or Lineage())


def _point(step: int, tier: str, attempt: int = 1) -> ResumePoint:
    return ResumePoint(step=step, tier=tier, attempt=attempt)


def test_nothing_anywhere_is_a_fresh_start() -> None:
    assert choose(_inventory([]), None, good) == Choice(point=None)


def test_memory_wins_over_disk_at_the_same_step() -> None:
    choice = choose(_inventory(_shards(20, "00 11"), [(1, 20)]), None, good)
    assert choice.point == _point(20, "memory")
    assert choice.holders == {0: (0,), 1: (1,)}


def test_a_step_that_only_one_rank_finished_is_passed_over_with_its_reason() -> None:
    choice = choose(_inventory(_shards(21, "00") + _shards(20, "00 11 01 10")), None, good)
    assert choice.point == _point(20, "memory")
    assert choice.skipped[0].reason == "no node holds the shard of rank 1"


def test_the_buddy_copy_completes_a_step() -> None:
    choice = choose(_inventory(_shards(20, "00 10")), None, good)
    assert choice.holders == {0: (0,), 1: (0,)}


def test_a_damaged_shard_is_no_shard() -> None:
    shards = _shards(20, "00") + _shards(20, "11", problem="shard.bin is damaged")
    choice = choose(_inventory(shards, [(1, 10)]), None, good)
    assert choice.point == _point(10, "disk")
    assert choice.skipped[0].reason == "shard.bin is damaged"


def test_another_world_size_falls_back_to_disk() -> None:
    choice = choose(_inventory(_shards(20, "00 11 22", world_size=3), [(1, 10)]), None, good)
    assert choice.point == _point(10, "disk")
    assert choice.skipped[0].reason == "written by 3 ranks, this attempt has 2"


def test_a_damaged_newest_disk_copy_falls_back_to_the_one_before() -> None:
    choice = choose(_inventory([], [(1, 10), (1, 20)]), None, lambda copy: "it is damaged" if copy.step == 20 else "")
    assert choice.point == _point(10, "disk")
    assert (choice.skipped[0].step, choice.skipped[0].reason) == (20, "it is damaged")


def test_disk_copies_that_cannot_win_are_not_verified() -> None:
    def never(copy: DiskCopy) -> str:
        raise AssertionError(copy)

    assert choose(_inventory(_shards(20, "00 11"), [(1, 10)]), None, never).point == _point(20, "memory")


def test_what_an_older_attempt_wrote_beyond_the_resume_point_never_wins() -> None:
    lineage = Lineage(attempt=2, resumed={2: 10})
    inventory = _inventory(_shards(30, "00 11"), [(1, 10), (1, 20)], lineage)
    assert choose(inventory, None, good).point == _point(10, "disk")


def test_a_newer_attempt_wins_over_an_older_one() -> None:
    inventory = _inventory(_shards(12, "00 11", attempt=2) + _shards(11, "00 11"))
    assert choose(inventory, None, good).point == _point(12, "memory", attempt=2)


def test_an_asked_point_is_taken_or_refused() -> None:
    inventory = _inventory(_shards(30, "00 11"), [(1, 20)])
    assert choose(inventory, _point(20, "disk"), good).point == _point(20, "disk")
    assert choose(inventory, _point(0, "disk"), good).point is None
    with pytest.raises(CheckpointError, match=r"cannot resume from step 25 .*there is no such copy.*choose another"):
        choose(inventory, _point(25, "disk"), good)
    with pytest.raises(CheckpointError, match="it is damaged"):
        choose(inventory, _point(20, "disk"), damaged)


def test_a_job_whose_checkpoints_are_all_damaged_does_not_start_from_zero() -> None:
    with pytest.raises(CheckpointError, match="every checkpoint is unusable"):
        choose(_inventory([], [(1, 10)]), None, damaged)
