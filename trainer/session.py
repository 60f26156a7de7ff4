"""One attempt of one rank: join the group, build, restore, train, leave."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # re-exported without saying so
from torch.distributed.distributed_c10d import _set_pg_timeout

from everstep.core.errors import ConfigError
from everstep.trainer.chaos import Poison, Slowness
from everstep.trainer.checkpoint.choice import Choice
from everstep.trainer.checkpoint.disk import DiskTier
from everstep.trainer.checkpoint.fence import Fence, read_fence
from everstep.trainer.checkpoint.memory import MemoryRoot, MemoryTier
from everstep.trainer.checkpoint.resume import Place, Restorer, agree
from everstep.trainer.checkpoint.saver import Saver
from everstep.trainer.checkpoint.shard import ShardCodec
from everstep.trainer.config import TrainConfig
from everstep.trainer.data import DataOrder, DataPipeline, Share, Source, open_source
from everstep.trainer.environment import WorkerEnvironment
from everstep.trainer.journal import Journal
from everstep.trainer.loop import Parts, TrainLoop
from everstep.trainer.optimizer import ShardedAdamW
from everstep.trainer.sharding import data_mesh, sharded_decoder
from everstep.trainer.state import TrainState
from everstep.trainer_integration import EverstepCallback

_LOGGER = logging.getLogger("everstep.trainer")


def train(config: TrainConfig, environment: WorkerEnvironment, callback: EverstepCallback) -> TrainState:
    """Run the attempt to its last step and return the final state.

    Raises `FencedError`, `CheckpointError`, `NonFiniteLossError`, `ConfigError`, and what torch raises when a peer
    is lost; the process must then end, its process group is beyond repair.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if environment.attempt is not None:
        Fence(_checkpoint_dir(config), environment.attempt).check()
    group = _join(config, environment)
    place = _place(config, environment, group)
    fence = Fence(place.directory, place.attempt)
    if place.rank == 0:
        fence.start()
    loop = _build(config, environment, place, fence, group, callback)
    callback.on_train_start(
        step=loop.state.step,
        tokens=loop.state.tokens,
        loss=loop.state.loss,
        skipped=len(loop.state.position.skipped),
    )
    with loop.data:
        return _run(config, loop, callback)


def _checkpoint_dir(config: TrainConfig) -> Path:
    directory = config.checkpoint_dir
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write to {directory} ({error.strerror})", mend="set checkpoint.directory to a writable folder"
        ) from error
    return directory


def _join(config: TrainConfig, environment: WorkerEnvironment) -> dist.ProcessGroup:
    """Join the attempt's process group and make a second one for checkpoint traffic, which is returned."""
    timeout = timedelta(seconds=config.timeouts.start_s)
    if environment.launched:
        dist.init_process_group("gloo", timeout=timeout)
    else:
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1, timeout=timeout)
    group: dist.ProcessGroup | None = dist.new_group(backend="gloo", timeout=timeout)
    if group is None:
        raise ConfigError("this rank is not in its own job", mend="start it with RANK below WORLD_SIZE")
    return group


def _place(config: TrainConfig, environment: WorkerEnvironment, group: dist.ProcessGroup) -> Place:
    """Who this rank is. Without a controller the attempt is one more than the fence's."""
    directory = _checkpoint_dir(config)
    attempt = environment.attempt
    if attempt is None:
        shared: list[int] = [read_fence(directory).attempt + 1]
        dist.broadcast_object_list(shared, src=0, group=group)
        attempt = shared[0]
    memory_dir = environment.memory_dir or config.checkpoint.memory_dir
    return Place(
        job=environment.job or config.job,
        rank=environment.rank,
        world_size=environment.world_size,
        local_rank=environment.local_rank,
        attempt=attempt,
        memory=MemoryRoot(path=memory_dir) if memory_dir else None,
        directory=directory,
    )


def _build(
    config: TrainConfig,
    environment: WorkerEnvironment,
    place: Place,
    fence: Fence,
    group: dist.ProcessGroup,
    callback: EverstepCallback,
) -> TrainLoop:
    """Model, optimizer, tiers and the restored position, ready for the first step."""
    started = time.perf_counter()
    choice = agree(place, fence, environment.resume, group)
    mesh = data_mesh(place.world_size)
    model = sharded_decoder(config.model, mesh, seed=config.seed if choice.point is None else None)
    optimizer = ShardedAdamW(model, config.optimizer)
    codec = ShardCodec(optimizer.tensors())
    distributed = optimizer.distributed_tensors(mesh)
    keep = config.checkpoint
    disk = DiskTier(place.directory, rank=place.rank, keep=keep.keep_disk, fence=fence, group=group)
    memory = (
        None
        if place.memory is None
        else MemoryTier(
            place.memory,
            rank=place.rank,
            prunes=place.local_rank == 0,
            keep=keep.keep_memory,
            fence=fence,
            group=group if place.world_size > 1 else None,
        )
    )
    for passed_over in choice.skipped:
        if passed_over.tier == "disk":  # it did not verify; in memory a copy is also passed over when its node is gone
            callback.on_unusable_checkpoint(passed_over.tier)
    with callback.checkpoint(choice.point.tier if choice.point is not None else "none", "load"):
        state = Restorer(place, codec=codec, disk=disk, fence=fence, group=group).restore(choice, distributed)
    journal = Journal(config.output_dir, active=place.rank == 0)
    journal.resume(_resume_entry(place, choice, time.perf_counter() - started))
    skip = environment.skip_batches | frozenset(config.data.skip_batches)
    source = open_source(config.data)
    order = _order(config, source)
    state = _same_order(state, order)
    share = Share(rank=place.rank, world_size=place.world_size, position=state.position, skip=skip)
    parts = Parts(
        config=config,
        rank=place.rank,
        world_size=place.world_size,
        attempt=place.attempt,
        skip=skip,
        model=model,
        optimizer=optimizer,
        order=order,
        data=DataPipeline(source, order, config.data, share, device=torch.device("cpu"), seed=config.seed),
        saver=Saver(keep, place, codec=codec, memory=memory, disk=disk, distributed=distributed, callback=callback),
        callback=callback,
        journal=journal,
        poison=_poison(config) if config.chaos else None,
        slowness=Slowness(environment.node_dir) if config.chaos else None,
    )
    return TrainLoop(parts, state)


def _order(config: TrainConfig, source: Source) -> DataOrder:
    num_short = sum(size <= config.model.context for size in source.catalog.sizes)
    if num_short:
        _LOGGER.warning("%d shards are shorter than a window and hold no sample", num_short)
    return DataOrder(
        source.catalog,
        context=config.model.context,
        batch_size=config.data.batch_size,
        seed=config.seed,
        mix=config.data.shards.mix,
    )


def _same_order(state: TrainState, order: DataOrder) -> TrainState:
    """The state with what text and order are. Raises `ConfigError` when other ranks or the checkpoint had others."""
    extremes = torch.tensor([order.fingerprint, -order.fingerprint])
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX)
    if int(extremes.sum()) != 0:
        raise ConfigError(
            "the ranks read different text", mend="give all nodes the same data.directory or the same Python version"
        )
    if state.step and state.corpus != order.fingerprint:
        raise ConfigError(
            "the text differs from the one the checkpoint was trained on", mend="restore the data or start anew"
        )
    if state.step and state.position.shuffle not in {0, order.shuffle}:
        raise ConfigError(
            "the order of the data differs from the one the checkpoint was trained on",
            mend="restore seed, model.context, data.batch_size and data.shards.mix, or start anew",
        )
    return replace(state, corpus=order.fingerprint, position=replace(state.position, shuffle=order.shuffle))


def _poison(config: TrainConfig) -> Poison:
    return Poison([folder for folder in (config.data.directory, config.output_dir) if folder])


def _resume_entry(place: Place, choice: Choice, load_s: float) -> dict[str, Any]:
    point = choice.point
    for each in choice.skipped:
        if place.rank == 0:
            _LOGGER.warning("passed over step %d on %s: %s", each.step, each.tier, each.reason)
    if place.rank == 0:
        _LOGGER.info("attempt %d starts from %s", place.attempt, point or "step 0")
    return {
        "attempt": place.attempt,
        "step": point.step if point else 0,
        "tier": point.tier if point else "",
        "source_attempt": point.attempt if point else 0,
        "skipped": [asdict(each) for each in choice.skipped],
        "load_s": load_s,
        "at": time.time(),
    }


def _run(config: TrainConfig, loop: TrainLoop, callback: EverstepCallback) -> TrainState:
    first = loop.state.step + 1
    while not loop.finished:
        loop.step()
        if loop.state.step == first:
            _set_pg_timeout(timedelta(seconds=config.timeouts.step_s))
            callback.state("steady")
    loop.finish()
    callback.state("idle")
    dist.barrier()
    dist.destroy_process_group()
    return loop.state
