"""Which committed state is chosen, and what is said about those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.core.engine import Attempt, CheckpointCopy, RankPlacement, ResumePoint
from everstep.recovery.resume import ResumeChoice, choose

NODES = ("node-0", "node-1", "node-2")
LAST = Attempt(
    job="demo", number=1, placements=tuple(RankPlacement(rank=r, node=f"node-{r}", local_rank=0) for r in range(3))
)


def disk(step: int, *, attempt: int = 1, problems: tuple[str, ...] = ("", "", "")) -> list[CheckpointCopy]:
    return [
        CheckpointCopy(step=step, tier="disk", attempt=attempt, holder=node, problem=problem)
        for node, problem in zip(NODES, problems, strict=False)
    ]


def memory(
    step: int, *, attempt: int = 1, bad: tuple[tuple[int, str], ...] = (), lost: tuple[str, ...] = ()
) -> list[CheckpointCopy]:
    """Own copy and buddy's copy of each shard; `bad` are (rank, holder), `lost` are nodes whose memory is gone."""
    return [
        CheckpointCopy(
            step=step,
            tier="memory",
            attempt=attempt,
            holder=holder,
            rank=rank,
            problem="checksum differs" if (rank, holder) in bad else "",
        )
        for rank in range(3)
        for holder in (NODES[rank], NODES[(rank + 1) % 3])
        if holder not in lost
    ]


def pick(
    *copies: list[CheckpointCopy], last: Attempt = LAST, nodes: tuple[str, ...] = NODES, **rules: Any
) -> ResumeChoice:
    return choose([one for group in copies for one in group], last=last, nodes=nodes, **rules)


def point(step: int, tier: str, attempt: int = 1) -> ResumePoint:
    return ResumePoint(step=step, tier=tier, attempt=attempt)


def test_newest_wins_and_memory_wins_at_equal_step() -> None:
    assert pick(disk(40), memory(35)).point == point(40, "disk")
    assert pick(disk(40), memory(45)).point == point(45, "memory")
    assert pick(disk(40), memory(40)).point == point(40, "memory")


def test_a_later_attempt_wins_over_a_higher_step_of_an_older_one() -> None:
    last = Attempt(job="demo", number=2, placements=LAST.placements, resume=point(50, "disk"))
    assert pick(disk(50), disk(45, attempt=2), last=last).point == point(45, "disk", 2)


def test_a_shard_counts_wherever_a_good_copy_is() -> None:
    assert pick(memory(45, lost=("node-1",))).point == point(45, "memory")
    assert pick(memory(45, bad=((1, "node-1"),))).point == point(45, "memory")


def test_a_shard_without_any_copy_makes_the_step_absent_not_damaged() -> None:
    choice = pick(memory(45, lost=("node-1", "node-2")), disk(40))
    assert choice.point == point(40, "disk")
    assert choice.skipped[0].why == "no reachable node holds the shard of rank 1"
    assert choice.damaged == ()


def test_copies_on_nodes_that_do_not_take_part_do_not_count() -> None:
    choice = pick(memory(45), disk(40), nodes=("node-0", "node-3"))
    assert choice.point == point(40, "disk")


def test_a_shard_whose_copies_are_all_bad_damages_the_step() -> None:
    choice = pick(memory(45, bad=((1, "node-1"), (1, "node-2"))), disk(40))
    assert choice.point == point(40, "disk")
    assert [(one.point, one.why) for one in choice.damaged] == [(point(45, "memory"), "checksum differs")]


def test_every_damaged_step_is_told_once_newest_first() -> None:
    bad = ("checksum differs",) * 3
    choice = pick(
        disk(50, problems=bad), memory(50, bad=((0, "node-0"), (0, "node-1"))), disk(40, problems=bad), disk(30)
    )
    assert choice.point == point(30, "disk")
    assert [one.point.step for one in choice.damaged] == [50, 40]


def test_damage_in_one_tier_is_no_loss_when_the_other_holds_the_step() -> None:
    choice = pick(disk(40, problems=("checksum differs",) * 3), memory(40))
    assert choice.point == point(40, "memory")
    assert choice.damaged == ()
    choice = pick(memory(40, bad=((0, "node-0"), (0, "node-1"))), disk(40))
    assert choice.point == point(40, "disk")
    assert choice.damaged == ()


def test_a_lying_reader_cannot_make_all_states_unusable() -> None:
    liar = ("I/O error", "", "")
    assert pick(disk(50, problems=liar), disk(40)).point == point(40, "disk")
    assert pick(disk(50, problems=liar), disk(40, problems=liar)).point == point(50, "disk")


def test_nothing_committed_is_from_scratch_and_nothing_usable_is_not() -> None:
    assert pick() == ResumeChoice(point=None)
    assert pick().from_scratch
    broken = pick(disk(40, problems=("checksum differs",) * 3))
    assert broken.point is None
    assert not broken.from_scratch


def test_what_was_left_behind_by_a_rollback_is_not_picked_up() -> None:
    last = Attempt(job="demo", number=2, placements=LAST.placements, resume=point(40, "disk"))
    assert pick(disk(50), disk(40), last=last).point == point(40, "disk")
    assert pick(disk(50, problems=("bad",) * 3), disk(40), last=last).damaged == ()
    assert pick(disk(60, attempt=3), disk(40), last=last).point == point(40, "disk")


def test_avoided_states_and_distrusted_attempts() -> None:
    assert pick(memory(45), disk(45), disk(40), avoid=(point(45, "memory"),)).point == point(40, "disk")
    last = Attempt(job="demo", number=2, placements=LAST.placements, resume=point(45, "disk"))
    choice = pick(disk(50, attempt=2), disk(45), disk(40), last=last, avoid=(point(45, "disk"),), distrust=(2,))
    assert choice.point == point(40, "disk")
    assert choice.damaged == ()


def test_only_states_before_the_onset_of_a_corruption() -> None:
    choice = pick(disk(50), disk(40), before_step=50)
    assert choice.point == point(40, "disk")
    assert "step 50" in choice.skipped[0].why


@pytest.mark.parametrize("rank", [3, 7])
def test_shards_of_another_world_size_are_left_alone(rank: int) -> None:
    alien = CheckpointCopy(step=45, tier="memory", attempt=1, holder="node-0", rank=rank)
    choice = pick(memory(45), [alien], disk(40))
    assert choice.point == point(40, "disk")
    assert choice.skipped[0].why == "it was written by another number of ranks"
