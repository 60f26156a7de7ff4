"""Which committed state to continue from, and which newer ones cannot be used and why.

Newest by (attempt, step), memory before disk. A memory step counts when every rank's shard has a good copy on a node
that takes part; a disk checkpoint when nobody who read it found it damaged. Only the line that led to the last attempt
counts: what was left behind by an earlier rollback is not picked up again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from everstep.core.engine import Attempt, CheckpointCopy, ResumePoint

MEMORY = "memory"
DISK = "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A committed state that is newer than the chosen one; `damaged` tells a bad copy from an absent one."""

    point: ResumePoint
    why: str
    damaged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeChoice:
    """`point` None means that nothing can be used; `skipped` has the newest first."""

    point: ResumePoint | None
    skipped: tuple[Skipped, ...] = ()

    @property
    def damaged(self) -> tuple[Skipped, ...]:
        """Committed steps that are lost because their copies are damaged, newest first, each step once."""
        kept = (self.point.attempt, self.point.step) if self.point is not None else (-1, -1)
        lost: dict[tuple[int, int], Skipped] = {}
        for one in self.skipped:
            key = (one.point.attempt, one.point.step)
            if one.damaged and key > kept:
                lost.setdefault(key, one)
        return tuple(lost.values())

    @property
    def from_scratch(self) -> bool:
        """Whether nothing was ever committed, so that step 0 loses nothing."""
        return self.point is None and not self.skipped


def choose(
    copies: Iterable[CheckpointCopy],
    *,
    last: Attempt,
    nodes: Collection[str],
    avoid: Collection[ResumePoint] = (),
    distrust: Collection[int] = (),
    before_step: int | None = None,
) -> ResumeChoice:
    """`last` is the attempt that broke, `nodes` take part in the next one.

    States in `avoid` were tried in vain, in whatever tier; attempts in `distrust` made wrong steps from the start.
    With `before_step` only older states count: those after the onset of a silent corruption cannot be trusted.
    """
    by_point = _grouped(copies)
    skipped: list[Skipped] = []
    disputed: ResumeChoice | None = None
    for point in sorted(by_point, key=_newest_first):
        if not _on_line(point, last):
            continue
        verdict = _judge(point, by_point[point], world_size=last.world_size, nodes=nodes)
        if point.attempt in distrust:
            verdict = _Verdict(why=f"attempt {point.attempt} went wrong from its first steps")
        elif any((point.attempt, point.step) == (one.attempt, one.step) for one in avoid):
            verdict = _Verdict(why="it was tried before and did not lead to good steps")
        elif before_step is not None and point.step >= before_step:
            verdict = _Verdict(why=f"it may hold what went wrong from step {before_step} on")
        if not verdict.why:
            return ResumeChoice(point=point, skipped=tuple(skipped))
        if verdict.disputed and disputed is None:
            disputed = ResumeChoice(point=point, skipped=tuple(skipped))
        skipped.append(Skipped(point=point, why=verdict.why, damaged=verdict.damaged))
    return disputed or ResumeChoice(point=None, skipped=tuple(skipped))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """Empty `why`: usable. `disputed`: some readers found it good."""

    why: str = ""
    damaged: bool = False
    disputed: bool = False


def _grouped(copies: Iterable[CheckpointCopy]) -> Mapping[ResumePoint, list[CheckpointCopy]]:
    grouped: dict[ResumePoint, list[CheckpointCopy]] = {}
    for copy in copies:
        point = ResumePoint(step=copy.step, tier=copy.tier, attempt=copy.attempt)
        grouped.setdefault(point, []).append(copy)
    return grouped


def _newest_first(point: ResumePoint) -> tuple[int, int, bool]:
    return -point.attempt, -point.step, point.tier != MEMORY


def _on_line(point: ResumePoint, last: Attempt) -> bool:
    """Written by the last attempt, or by an older one no later than where the last one began."""
    if point.attempt > last.number:
        return False
    return point.attempt == last.number or last.resume is None or point.step <= last.resume.step


def _judge(
    point: ResumePoint, copies: Iterable[CheckpointCopy], *, world_size: int, nodes: Collection[str]
) -> _Verdict:
    if point.tier == MEMORY:
        return _judge_memory([copy for copy in copies if copy.holder in nodes], world_size)
    problems = [copy.problem for copy in copies]
    bad = sorted({problem for problem in problems if problem})
    if not bad:
        return _Verdict()
    return _Verdict(why=bad[0], damaged=True, disputed="" in problems)


def _judge_memory(copies: Iterable[CheckpointCopy], world_size: int) -> _Verdict:
    by_rank: dict[int, list[str]] = {}
    for copy in copies:
        if copy.rank is not None:
            by_rank.setdefault(copy.rank, []).append(copy.problem)
    if any(rank >= world_size for rank in by_rank):
        return _Verdict(why="it was written by another number of ranks")
    absent = [rank for rank in range(world_size) if rank not in by_rank]
    if absent:
        return _Verdict(why=f"no reachable node holds the shard of rank {absent[0]}")
    for _, problems in sorted(by_rank.items()):
        if "" not in problems:
            return _Verdict(why=problems[0], damaged=True)
    return _Verdict()
