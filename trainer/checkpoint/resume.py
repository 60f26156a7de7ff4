"""Find, agree on and load the state to continue from; every rank of an attempt runs this together."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from everstep.core import manifest
from everstep.core.engine import ResumePoint
from everstep.core.errors import EverstepError, ManifestError
from everstep.trainer.checkpoint.choice import CheckpointError, Choice, DiskCopy, HeldShard, Inventory, choose
from everstep.trainer.checkpoint.disk import DiskTier, disk_checkpoints, disk_folder
from everstep.trainer.checkpoint.fence import Fence
from everstep.trainer.checkpoint.memory import MemoryRoot, read_bytes
from everstep.trainer.checkpoint.shard import SHARD_FILE, ShardCodec
from everstep.trainer.state import TrainState

_LOGGER = logging.getLogger("everstep.trainer.resume")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Who asks and where copies may stand."""

    job: str
    rank: int
    world_size: int
    local_rank: int
    attempt: int
    memory: MemoryRoot | None
    directory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A `CheckpointError` in a form that travels between ranks."""

    problem: str
    mend: str


def agree(place: Place, fence: Fence, asked: ResumePoint | None, group: dist.ProcessGroup) -> Choice:
    """One choice for all ranks: inventories are gathered, rank 0 verifies disk copies and decides.

    Raises `CheckpointError` on every rank alike.
    """
    gathered: list[list[HeldShard] | None] = [None] * place.world_size
    dist.all_gather_object(gathered, held_shards(place), group=group)
    decision: list[Choice | _Refusal | None] = [None]
    if place.rank == 0:
        inventory = Inventory(
            world_size=place.world_size,
            shards=[held for part in gathered if part for held in part],
            disk=[DiskCopy(attempt=attempt, step=step) for attempt, step, _ in disk_checkpoints(place.directory)],
            lineage=fence.read(),
        )
        decision = [_decide(inventory, asked, place.directory)]
    dist.broadcast_object_list(decision, src=0, group=group)
    chosen = decision[0]
    if isinstance(chosen, Choice):
        return chosen
    refusal = chosen or _Refusal(problem="rank 0 sent no decision", mend="start a new attempt")
    raise CheckpointError(refusal.problem, mend=refusal.mend)


def _decide(inventory: Inventory, asked: ResumePoint | None, directory: Path) -> Choice | _Refusal:
    def problem(copy: DiskCopy) -> str:
        try:
            manifest.verify(disk_folder(directory, step=copy.step, attempt=copy.attempt))
        except ManifestError as error:
            return error.problem
        return ""

    try:
        return choose(inventory, asked, problem)
    except CheckpointError as error:
        return _Refusal(problem=error.problem, mend=error.mend)


def held_shards(place: Place) -> list[HeldShard]:
    """What stands in this node's memory directory for the job, each file verified."""
    if place.memory is None:
        return []
    found = []
    for attempt, step, folder in place.memory.snapshots():
        found += [_held(place, attempt, step, shard) for shard in folder.glob("rank-*") if _committed(shard)]
    return found


def _committed(folder: Path) -> bool:
    return folder.name.removeprefix("rank-").isdigit() and (folder / manifest.MANIFEST).exists()


def _held(place: Place, attempt: int, step: int, folder: Path) -> HeldShard:
    rank = int(folder.name.removeprefix("rank-"))
    problem, size, world_size = "", 0, place.world_size
    try:
        commit = manifest.verify(folder)
        size, world_size = commit.files[SHARD_FILE].size, commit.world_size
        if (commit.attempt, commit.step, commit.rank, commit.job) != (attempt, step, rank, place.job):
            problem = f"{folder} holds the manifest of another copy"
    except (ManifestError, KeyError) as error:
        problem = error.problem if isinstance(error, ManifestError) else f"{folder} holds no shard"
    return HeldShard(
        attempt=attempt, step=step, shard=rank, world_size=world_size, size=size, holder=place.rank, problem=problem
    )


class LoadError(CheckpointError):
    """A copy that verifies and still cannot be loaded, or a peer that was lost meanwhile; the cause tells which."""


_LOADING_FAILS = (OSError, RuntimeError, LookupError, TypeError, ValueError, EOFError, CheckpointException)
"""What torch, its unpickler and our own decoding raise over contents that are not what they should be."""


class Restorer:
    """Loads an agreed choice into the training state."""

    def __init__(
        self, place: Place, *, codec: ShardCodec, disk: DiskTier, fence: Fence, group: dist.ProcessGroup
    ) -> None:
        self._place = place
        self._codec = codec
        self._disk = disk
        self._fence = fence
        self._group = group

    def restore(self, choice: Choice, distributed: dict[str, Tensor]) -> TrainState:
        """Fill the tensors and give up what older attempts wrote beyond the point; step 0 when there is none.

        Raises `LoadError` when the copy cannot be read in.
        """
        state = TrainState() if choice.point is None else self._load(choice.point, choice.holders, distributed)
        self._give_up(state.step)
        return state

    def _load(
        self, point: ResumePoint, holders: dict[int, tuple[int, ...]], distributed: dict[str, Tensor]
    ) -> TrainState:
        try:
            if point.tier == "memory":
                return self._codec.unpack(self._shard(point, holders))
            folder = disk_folder(self._place.directory, step=point.step, attempt=point.attempt)
            return self._disk.load(folder, distributed)
        except EverstepError:
            raise
        except _LOADING_FAILS as error:
            why = f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"
            raise LoadError(
                f"the copy of step {point.step} in tier {point.tier} cannot be loaded ({why})",
                mend="resume from an older copy",
            ) from error

    def _shard(self, point: ResumePoint, holders: dict[int, tuple[int, ...]]) -> Tensor:
        """This rank's shard, from the own node or sent by the first rank that holds it; all ranks pass here."""
        place = self._place
        sending = []
        for shard, ranks in sorted(holders.items()):
            if shard not in ranks and ranks[0] == place.rank:
                sending += self._send(read_bytes(self._file(point, shard)), shard)
        ranks = holders[place.rank]
        if place.rank in ranks:
            data = read_bytes(self._file(point, place.rank))
        else:
            data = self._receive(ranks[0])
            _LOGGER.info("rank %d takes its shard of step %d from rank %d", place.rank, point.step, ranks[0])
        for work in sending:
            work.wait()
        return data

    def _send(self, data: Tensor, target: int) -> list[dist.Work]:
        parts = (torch.tensor([len(data)]), data)
        works = [dist.isend(part, target, group=self._group, tag=tag) for tag, part in enumerate(parts)]
        return [work for work in works if work is not None]

    def _receive(self, source: int) -> Tensor:
        size = torch.zeros(1, dtype=torch.int64)
        dist.recv(size, source, group=self._group, tag=0)
        data = torch.empty(int(size), dtype=torch.uint8)
        dist.recv(data, source, group=self._group, tag=1)
        return data

    def _file(self, point: ResumePoint, shard: int) -> Path:
        if self._place.memory is None:
            raise ManifestError("this rank has no memory directory", mend="resume from disk")
        return self._place.memory.shard(step=point.step, attempt=point.attempt, rank=shard) / SHARD_FILE

    def _give_up(self, step: int) -> None:
        place = self._place
        if place.rank == 0:
            self._fence.resumed(step)
        if place.memory is not None and place.local_rank == 0:
            place.memory.forget(before_attempt=place.attempt, beyond_step=step)
