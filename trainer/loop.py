"""The training loop of one rank: data, forward, backward, one reduction, optimizer, snapshots, report."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from everstep.core.errors import EverstepError
from everstep.trainer.chaos import Poison, Slowness
from everstep.trainer.checkpoint.saver import Saver
from everstep.trainer.config import TrainConfig
from everstep.trainer.data import Batch, DataError, DataOrder, DataPipeline, Sample
from everstep.trainer.journal import Journal
from everstep.trainer.model import flops_per_token, weighted_loss
from everstep.trainer.optimizer import ShardedAdamW, learning_rate
from everstep.trainer.state import TrainState
from everstep.trainer_integration import EverstepCallback


class NonFiniteLossError(EverstepError):
    """The global loss or gradient of a batch was NaN or infinite; nothing of that step was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """One reduction over all ranks: the mean loss of the global batch and the norm of its gradient."""

    loss: float
    gradient_norm: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything the loop works with; built by `everstep.trainer.session`."""

    config: TrainConfig
    rank: int
    world_size: int
    attempt: int
    skip: frozenset[int]
    model: nn.Module
    optimizer: ShardedAdamW
    order: DataOrder
    data: DataPipeline
    saver: Saver
    callback: EverstepCallback
    journal: Journal
    poison: Poison | None
    slowness: Slowness | None


class TrainLoop:
    """Runs steps until the configured number is reached. All ranks call the same methods together."""

    def __init__(self, parts: Parts, state: TrainState) -> None:
        self._parts = parts
        self.state = state
        self._collectives = 0
        self._flops = flops_per_token(parts.config.model)

    @property
    def data(self) -> DataPipeline:
        """To be started before the first step."""
        return self._parts.data

    @property
    def finished(self) -> bool:
        return self.state.step >= self._parts.config.steps

    def step(self) -> None:
        """Train one step. Raises `NonFiniteLossError` with the state untouched."""
        parts, callback = self._parts, self._parts.callback
        batch, left_out = parts.order.next(self.state.position, parts.skip)
        callback.step_begin(batch.index)
        with callback.phase("data"):
            sample, weights = self._load(batch)
        self._announce_collectives()
        spent = self._forward_backward(sample, weights)
        with callback.phase("optimizer"):
            squares = parts.optimizer.collect_gradients()
        with callback.phase("collective"):
            sums = self._reduce(spent, squares)
        if not sums.finite:
            self._refuse(batch, sums, weights)
        rate = learning_rate(parts.config.optimizer, self.state.step + 1, parts.config.steps)
        with callback.phase("optimizer"):
            clip = parts.config.optimizer.clip_norm
            scale = min(1.0, clip / (sums.gradient_norm + 1e-6))
            parts.optimizer.step(learning_rate=rate, scale=scale)
        self.state = replace(
            self.state,
            step=self.state.step + 1,
            loss=sums.loss,
            tokens=self.state.tokens + len(batch.windows) * parts.config.model.context,
            position=self.state.position.passed(batch, left_out),
        )
        with callback.phase("checkpoint"):
            parts.saver.after_step(self.state)
        self._report(batch, sums, rate)

    def finish(self) -> None:
        """Keep the last step on disk and write the result."""
        parts, state = self._parts, self.state
        with parts.callback.phase("checkpoint"):
            parts.saver.to_disk(state)
        parts.journal.result(
            {
                "final_loss": state.loss,
                "steps": state.step,
                "sample_hash": state.position.sample_hash,
                "skipped": list(state.position.skipped),
                "attempt": parts.attempt,
                "tokens": state.tokens,
                "data_stages": {stage: asdict(timing) for stage, timing in parts.data.timings().items()},
            }
        )
        parts.journal.close()

    def _load(self, batch: Batch) -> tuple[Sample, Tensor]:
        """This rank's part of the batch and the weight of each target; corrupted data has NaN weights."""
        parts = self._parts
        sample = parts.data.next()
        if sample.index != batch.index:
            raise DataError(
                f"the data pipeline gave batch {sample.index} where {batch.index} is due", mend="report it as a defect"
            )
        weights = torch.ones(sample.targets.shape, device=sample.targets.device)
        if parts.poison is not None and parts.poison.marks(batch.index, parts.rank):
            weights.fill_(math.nan)
        return sample, weights

    def _forward_backward(self, sample: Sample, weights: Tensor) -> Tensor:
        """The summed loss of this rank's slice. FSDP averages gradients over ranks, hence the factor world size."""
        parts, callback = self._parts, self._parts.callback
        global_tokens = parts.config.data.batch_size * parts.config.model.context
        factor = parts.slowness.factor() if parts.slowness else 1.0
        with callback.phase("forward"):
            started = time.thread_time()
            loss = weighted_loss(parts.model(sample.inputs), sample.targets, weights)
            self._slow_down(factor, started)
        with callback.phase("backward"):
            started = time.thread_time()
            (loss * (parts.world_size / global_tokens)).backward()
            self._slow_down(factor, started)
        return loss.detach()

    def _slow_down(self, factor: float, started: float) -> None:
        if factor > 1.0 and self._parts.slowness is not None:
            self._parts.slowness.burn((factor - 1.0) * (time.thread_time() - started))

    def _reduce(self, loss: Tensor, squares: Tensor) -> Sums:
        both = torch.stack((loss.double(), squares))
        dist.all_reduce(both)
        global_tokens = self._parts.config.data.batch_size * self._parts.config.model.context
        total, square = both.tolist()
        return Sums(loss=total / global_tokens, gradient_norm=math.sqrt(square) if square >= 0 else math.nan)

    def _announce_collectives(self) -> None:
        """Per step: an all-gather of each layer and the root forward and backward, their reductions, and the sum."""
        self._collectives += 3 * (self._parts.config.model.layers + 1) + 1
        self._parts.callback.collective(self._collectives)

    def _refuse(self, batch: Batch, sums: Sums, weights: Tensor) -> None:
        own_input = not bool(torch.isfinite(weights).all())
        self._parts.optimizer.drop_gradients()
        self._parts.callback.on_nonfinite(batch.index, own_input, loss=sums.loss)
        raise NonFiniteLossError(
            f"step {self.state.step + 1} on batch {batch.index} has loss {sums.loss} and gradient norm "
            f"{sums.gradient_norm}" + (", this rank's own input is not finite" if own_input else ""),
            mend=f"skip the batch with EVERSTEP_SKIP_BATCHES={batch.index} or data.skip_batches, or lower the rate",
        )

    def _report(self, batch: Batch, sums: Sums, rate: float) -> None:
        parts, state = self._parts, self.state
        if state.position.skipped:
            parts.callback.on_skip(len(state.position.skipped))
        parts.callback.step_end(
            state.step,
            loss=sums.loss,
            gradient_norm=sums.gradient_norm,
            learning_rate=rate,
            tokens=state.tokens,
            batch_index=batch.index,
            sample_hash=state.position.sample_hash,
            flops=self._flops * len(batch.windows) * parts.config.model.context / parts.world_size,
        )
        parts.journal.step(
            {
                "attempt": parts.attempt,
                "step": state.step,
                "loss": sums.loss,
                "gradient_norm": sums.gradient_norm,
                "batch": batch.index,
                "sample_hash": state.position.sample_hash,
                "end": time.time(),
            }
        )
