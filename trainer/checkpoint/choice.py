"""Which committed state to continue from: a pure function of what every rank holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from everstep.core.engine import ResumePoint
from everstep.core.errors import EverstepError
from everstep.trainer.checkpoint.fence import Lineage


class CheckpointError(EverstepError):
    """The state that was asked for cannot be restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldShard:
    """One shard in the memory of the node on which rank `holder` runs; `problem` is empty when it verified."""

    attempt: int
    step: int
    shard: int
    world_size: int
    size: int
    holder: int
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCopy:
    """A checkpoint on shared storage that has a manifest; not verified yet."""

    attempt: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A newer copy that was passed over, and why."""

    step: int
    tier: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`point` None starts from step 0. `holders` maps each shard to the ranks that hold a good copy (memory tier)."""

    point: ResumePoint | None
    holders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that could be resumed from, as gathered from all ranks of a world of `world_size`."""

    world_size: int
    shards: Sequence[HeldShard]
    disk: Sequence[DiskCopy]
    lineage: Lineage


def choose(inventory: Inventory, asked: ResumePoint | None, disk_problem: Callable[[DiskCopy], str]) -> Choice:
    """The newest usable copy by (attempt, step), memory before disk at the same one; `asked` allows only that point.

    `disk_problem` verifies a disk copy and says what is wrong with it; it is called only for copies that would win.
    A fresh start when nothing was asked for and nothing is there. Raises `CheckpointError` when the point asked for
    cannot be used, or when all copies that exist are damaged.
    """
    if asked is not None and asked.step == 0:
        return Choice(point=None)
    skipped: list[Skipped] = []
    candidates = _candidates(inventory, asked)
    for point in candidates:
        holders: dict[int, tuple[int, ...]] = {}
        if point.tier == "memory":
            holders, problem = _holders(inventory, point)
        else:
            problem = disk_problem(DiskCopy(attempt=point.attempt, step=point.step))
        if not problem:
            return Choice(point=point, holders=holders, skipped=tuple(skipped))
        skipped.append(Skipped(step=point.step, tier=point.tier, attempt=point.attempt, reason=problem))
    _refuse(asked, skipped)
    return Choice(point=None, skipped=tuple(skipped))


def _candidates(inventory: Inventory, asked: ResumePoint | None) -> list[ResumePoint]:
    points = {ResumePoint(step=held.step, tier="memory", attempt=held.attempt) for held in inventory.shards}
    points |= {ResumePoint(step=copy.step, tier="disk", attempt=copy.attempt) for copy in inventory.disk}
    if asked is not None:
        return [asked] if asked in points else []
    usable = [p for p in points if not inventory.lineage.gave_up(attempt=p.attempt, step=p.step)]
    return sorted(usable, key=lambda p: (p.attempt, p.step, p.tier == "memory"), reverse=True)


def _holders(inventory: Inventory, point: ResumePoint) -> tuple[dict[int, tuple[int, ...]], str]:
    mine = [held for held in inventory.shards if (held.attempt, held.step) == (point.attempt, point.step)]
    sizes = {held.world_size for held in mine if not held.problem} - {inventory.world_size}
    if sizes:
        return {}, f"written by {min(sizes)} ranks, this attempt has {inventory.world_size}"
    holders: dict[int, tuple[int, ...]] = {}
    for rank in range(inventory.world_size):
        good = tuple(sorted({held.holder for held in mine if held.shard == rank and not held.problem}))
        if not good:
            broken = [held.problem for held in mine if held.shard == rank and held.problem]
            return {}, broken[0] if broken else f"no node holds the shard of rank {rank}"
        holders[rank] = good
    return holders, ""


def _refuse(asked: ResumePoint | None, skipped: list[Skipped]) -> None:
    reasons = "; ".join(f"step {each.step} on {each.tier}: {each.reason}" for each in skipped)
    if asked is not None:
        raise CheckpointError(
            f"cannot resume from step {asked.step} of attempt {asked.attempt} on {asked.tier} "
            f"({reasons or 'there is no such copy'})",
            mend="choose another resume point, or auto",
        )
    if any(each.tier == "disk" for each in skipped):
        raise CheckpointError(
            f"every checkpoint is unusable ({reasons})", mend="restore one, or empty the checkpoint directory"
        )
