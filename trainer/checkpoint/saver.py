"""When which tier is written, and what the callback is told about it."""

from __future__ import annotations

import logging

from torch import Tensor

from everstep.core.manifest import Manifest
from everstep.trainer.checkpoint.disk import DiskTier
from everstep.trainer.checkpoint.memory import MemoryTier
from everstep.trainer.checkpoint.resume import Place
from everstep.trainer.checkpoint.shard import ShardCodec
from everstep.trainer.config import CheckpointConfig
from everstep.trainer.state import TrainState
from everstep.trainer_integration import EverstepCallback

_LOGGER = logging.getLogger("everstep.trainer.checkpoint")


class Saver:
    """All ranks call it together after each finished step; what it is given is finite by then."""

    def __init__(
        self,
        config: CheckpointConfig,
        place: Place,
        *,
        codec: ShardCodec,
        memory: MemoryTier | None,
        disk: DiskTier,
        distributed: dict[str, Tensor],
        callback: EverstepCallback,
    ) -> None:
        self._config = config
        self._place = place
        self._codec = codec
        self._memory = memory
        self._disk = disk
        self._distributed = distributed
        self._callback = callback
        self._disk_step = -1
        self._memory_step = -1
        self._memory_fails = False

    def after_step(self, state: TrainState) -> None:
        """Write the tiers that are due. Raises `FencedError` before writing anything when the attempt is outdated.

        A memory snapshot counts as committed once the ranks have met again: this step's reduction proves the last one.
        """
        if self._memory_step >= 0:
            self._callback.on_checkpoint("memory", self._memory_step)
        if self._memory is not None and _due(state.step, self._config.memory_every_steps):
            self._to_memory(self._memory, state)
        if _due(state.step, self._config.disk_every_steps):
            self.to_disk(state)

    def _to_memory(self, tier: MemoryTier, state: TrainState) -> None:
        """A node without room for the snapshot is said once; the disk tier still protects the job."""
        try:
            with self._callback.checkpoint("memory", "save"):
                tier.save(self._codec.pack(state), self._manifest(state, self._place.rank))
        except OSError as error:
            if not self._memory_fails:
                _LOGGER.warning("no snapshot of step %d in memory (%s); free the node's tmpfs", state.step, error)
            self._memory_fails = True
        else:
            self._memory_step = state.step
            self._memory_fails = False

    def to_disk(self, state: TrainState) -> None:
        """Write a disk checkpoint unless this very step has one."""
        if state.step != self._disk_step and self._config.disk_every_steps:
            with self._callback.checkpoint("disk", "save"):
                self._disk.save(self._distributed, self._manifest(state, None))
            self._disk_step = state.step
            self._callback.on_checkpoint("disk", state.step)

    def _manifest(self, state: TrainState, rank: int | None) -> Manifest:
        place = self._place
        return Manifest(
            job=place.job,
            step=state.step,
            attempt=place.attempt,
            world_size=place.world_size,
            rank=rank,
            position=state.as_json(),
            layout={"dp": place.world_size},
            files={},
        )


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
