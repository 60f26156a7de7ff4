"""EverstepLightningCallback: one more callback for a Lightning `Trainer`, and the node agent sees every step.

    Trainer(callbacks=[EverstepLightningCallback()])

Works with `lightning` and with `pytorch_lightning`. Importing this module imports Lightning; nothing else of Everstep
does. No hook raises into the loop, waits for another rank or takes part in a collective.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from everstep.trainer_integration.batches import count_tokens, is_finite
from everstep.trainer_integration.callback import EverstepCallback
from everstep.trainer_integration.guard import guarded
from everstep.trainer_integration.tracker import StepReport, StepTracker

try:
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning.callbacks import Callback
    else:
        from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed; pip install 'everstep[lightning]'", name=error.name
        ) from None

_SHARDED = {"DeepSpeedStrategy", "FSDPStrategy", "ModelParallelStrategy"}


class EverstepLightningCallback(Callback):
    """Tells of every optimizer step: phases, loss and gradient norm of this rank, learning rate, tokens, saves.

    `failures` counts hooks that went wrong; none of them reaches the loop. The total of tokens is kept in Lightning's
    checkpoints.
    """

    def __init__(
        self,
        callback: EverstepCallback | None = None,
        *,
        tokens: Callable[[Any], int] = count_tokens,
        flops_per_step: float = 0.0,
        gradient_norm: bool = True,
        read_every_n_steps: int = 1,
    ) -> None:
        """By default the callback that the agent's environment describes, made when the trainer sets up.

        `tokens` counts those of one batch of this rank; `flops_per_step` is this rank's floating-point work.
        `gradient_norm` costs one pass over the gradients. Reading loss and norm waits for the device;
        `read_every_n_steps` makes that rarer, and finds a loss that is not finite later.
        """
        super().__init__()
        self.failures = 0
        self._callback = callback
        self._count = tokens
        self._flops = flops_per_step
        self._wants_norm = gradient_norm
        self._read_every = read_every_n_steps
        self._tracker: StepTracker | None = None
        self._tokens = 0
        self._step = 0
        self._rate = 0.0
        self._loss = 0.0
        self._losses: list[Any] = []
        self._norm: Any = None

    @property
    def _track(self) -> StepTracker:
        if self._tracker is None:
            self._tracker = StepTracker(self._callback or EverstepCallback.from_environment())
        return self._tracker

    @guarded
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._track.leave()  # makes the record here, in the process that trains: it does not survive a spawn
        if stage == "fit":
            trainer.save_checkpoint = TimedSave(self, trainer)

    @guarded
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        TimedSave.remove(trainer)

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = trainer.global_step
        self._losses.clear()
        batch = trainer.fit_loop.total_batch_idx + 1
        self._track.start(step=self._step, tokens=self._tokens, batch_index=batch)

    @guarded
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._track.begin_batch()
        self._track.enter("forward")

    @guarded
    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        self._track.enter("backward")

    @guarded
    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        self._track.leave()

    @guarded
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self._track.enter("optimizer")
        self._rate = float(optimizer.param_groups[0]["lr"])
        if self._wants_norm and self._reads(trainer.global_step + 1):
            self._norm = _norm(pl_module, sharded=type(trainer.strategy).__name__ in _SHARDED)

    @guarded
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._track.leave()
        self._tokens += self._count(batch) * trainer.world_size
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None:
            self._losses.append(loss)
        index = trainer.fit_loop.total_batch_idx
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self._track.finish(self._report(trainer, batch, index))
            self._losses.clear()
            self._norm = None
        self._track.wait_for_data(index + 1)

    def _reads(self, step: int) -> bool:
        return step % self._read_every == 0

    def _report(self, trainer: Any, batch: Any, index: int) -> StepReport:
        """Lightning divides a batch's loss by the batches of its step, so their sum is the step's."""
        fresh = bool(self._losses) and self._reads(self._step)
        if fresh:
            self._loss = float(sum(self._losses))
        norm = math.nan if self._norm is None else float(self._norm)
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None  # then an infinite gradient is routine
        infinite = (fresh and not math.isfinite(self._loss)) or (
            self._norm is not None and not scaled and not math.isfinite(norm)
        )
        return StepReport(
            step=self._step,
            loss=self._loss,
            gradient_norm=norm,
            learning_rate=self._rate,
            tokens=self._tokens,
            batch_index=index,
            flops=self._flops,
            nonfinite=infinite,
            input_nonfinite=infinite and not is_finite(batch),
        )

    @guarded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._track.pause("evaluation")

    @guarded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._track.resume()

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._track.stop()

    @guarded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        TimedSave.remove(trainer)
        self.close()

    @guarded
    def before_save(self) -> None:
        """A checkpoint is about to be written; `TimedSave` calls it."""
        self._track.pause("checkpoint")

    @guarded
    def after_save(self, step: int | None, error: BaseException | None) -> None:
        """The write has ended; `step` can be resumed from, None when it cannot."""
        self._track.resume(error)
        if step is not None and error is None:
            self._track.saved(step)

    @guarded
    def close(self) -> None:
        """Let go of the record; what this callback is told from here on goes nowhere."""
        self._track.close()

    def state_dict(self) -> dict[str, Any]:
        return {"tokens": self._tokens}

    @guarded
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._tokens = int(state_dict["tokens"])


class TimedSave:
    """Stands in for a trainer's `save_checkpoint`: Lightning has a hook before a checkpoint is written, none after."""

    def __init__(self, callback: EverstepLightningCallback, trainer: Any) -> None:
        self._callback = callback
        self._trainer = trainer
        self._save = trainer.save_checkpoint
        functools.update_wrapper(self, self._save)

    @staticmethod
    def remove(trainer: Any) -> None:
        """Give the trainer its own method back."""
        if isinstance(vars(trainer).get("save_checkpoint"), TimedSave):
            del trainer.save_checkpoint

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Raises what saving raises."""
        error: BaseException | None = None
        self._callback.before_save()
        try:
            self._save(*args, **kwargs)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._callback.after_save(self._resumable(args, kwargs), error)

    def _resumable(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """The step, unless only weights were written or the write goes on in the background."""
        partial = kwargs.get("weights_only", args[1] if len(args) > 1 else False)
        strategy = self._trainer.strategy
        later = type(getattr(strategy, "checkpoint_io", None)).__name__ == "AsyncCheckpointIO"
        return None if partial or later else int(self._trainer.global_step)


def _norm(module: Any, *, sharded: bool) -> Any:
    """The norm of all gradients as a tensor; None where this rank has only a shard of them: no collective for it."""
    from torch.nn.utils import get_total_norm

    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    if sharded or not gradients or any(hasattr(gradient, "to_local") for gradient in gradients):
        return None
    return get_total_norm(gradients)
