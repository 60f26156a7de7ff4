"""EverstepTrainerCallback: one more callback for a Hugging Face `Trainer`, and the node agent sees every step.

    Trainer(..., callbacks=[EverstepTrainerCallback()])

Importing this module imports transformers; nothing else of Everstep does. No hook raises into the loop, waits for
another rank or takes part in a collective. A step is an optimizer step, whatever it accumulates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from everstep.trainer_integration.callback import EverstepCallback
from everstep.trainer_integration.guard import guarded
from everstep.trainer_integration.tracker import StepReport, StepTracker

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is not installed; pip install 'everstep[huggingface]'", name=error.name
    ) from None


class EverstepTrainerCallback(TrainerCallback):
    """Tells of every optimizer step: phases, learning rate, tokens, saves, and the loss as often as it is logged.

    `failures` counts hooks that went wrong; none of them reaches the loop.
    """

    def __init__(
        self, callback: EverstepCallback | None = None, *, tokens_per_step: int = 0, flops_per_step: float = 0.0
    ) -> None:
        """By default the callback that the agent's environment describes.

        `tokens_per_step` is the whole job's, used when the trainer does not count them itself
        (`include_num_input_tokens_seen`); `flops_per_step` is this rank's floating-point work.
        """
        self.failures = 0
        self._track = StepTracker(callback or EverstepCallback.from_environment())
        self._tokens_per_step = tokens_per_step
        self._flops = flops_per_step
        self._rate = 0.0
        self._loss = 0.0
        self._logs: dict[str, float] = {}
        self._unreported: int | None = None
        self._evaluating = False
        self._stepping = False
        self._hooks: list[Any] = []
        self._finite: tuple[str, ...] = ("loss", "grad_norm")

    @guarded
    def on_train_begin(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._unreported = None
        self._evaluating = False
        self._finite = ("loss",) if args.fp16 else ("loss", "grad_norm")  # a scaled loss overflows gradients routinely
        self._watch_forward(kwargs.get("model"), compiled=bool(args.torch_compile))
        step = state.global_step
        self._track.start(step=step, tokens=self._tokens(state), batch_index=step)

    @guarded
    def on_step_begin(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._unreported is not None:
            self._report(state)
        self._stepping = True
        self._track.begin_batch()

    @guarded
    def on_substep_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._track.leave()

    @guarded
    def on_pre_optimizer_step(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._track.enter("optimizer")
        self._rate = float(kwargs["optimizer"].param_groups[0]["lr"])

    @guarded
    def on_optimizer_step(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._track.leave()

    @guarded
    def on_step_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._track.leave()
        self._stepping = False
        self._unreported = state.global_step
        self._follow(state, control)

    @guarded
    def on_epoch_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._follow(state, control)

    @guarded
    def on_log(
        self,
        /,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs is None or "loss" not in logs:
            return
        self._logs = dict(logs)
        if self._unreported is not None:  # else the log of an epoch: the next step tells of it
            self._report(state)
            self._follow(state, control)

    @guarded
    def on_prediction_step(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._evaluate()

    @guarded
    def on_evaluate(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._evaluating = False
        self._track.resume()
        self._follow(state, control)

    @guarded
    def on_save(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._track.resume()
        if not args.save_only_model:
            self._track.saved(state.global_step)

    @guarded
    def on_train_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._unreported is not None:
            self._report(state)
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._track.stop()

    @guarded
    def close(self) -> None:
        """Let go of the record; what this callback is told from here on goes nowhere."""
        self._track.close()

    def _follow(self, state: Any, control: Any) -> None:
        """What comes next is in the control: a log with the step's loss, an evaluation, a save, or more data."""
        if control.should_log:
            return
        if self._unreported is not None:
            self._report(state)
        if control.should_evaluate:
            self._evaluate()
        elif control.should_save:
            self._track.pause("checkpoint")
        else:
            self._track.wait_for_data(state.global_step)

    def _evaluate(self) -> None:
        if not self._evaluating:
            self._evaluating = True
            self._track.pause("evaluation")

    def _report(self, state: Any) -> None:
        step, self._unreported = self._unreported or state.global_step, None
        logs, self._logs = self._logs, {}
        self._loss = float(logs.get("loss", self._loss))
        watched = [float(logs[name]) for name in self._finite if name in logs]
        self._track.finish(
            StepReport(
                step=step,
                loss=self._loss,
                gradient_norm=float(logs.get("grad_norm", math.nan)),
                learning_rate=self._rate,
                tokens=self._tokens(state),
                batch_index=step - 1,
                flops=self._flops,
                nonfinite=not all(math.isfinite(each) for each in watched),
            )
        )

    def _tokens(self, state: Any) -> int:
        return int(state.num_input_tokens_seen) or self._tokens_per_step * int(state.global_step)

    def _watch_forward(self, model: Any, *, compiled: bool) -> None:
        """The trainer has no hook between forward and backward, but the module has; a compiled one is left alone."""
        if model is None or compiled or self._hooks:
            return
        self._hooks = [
            model.register_forward_pre_hook(self._before_forward),
            model.register_forward_hook(self._after_forward),
        ]

    @guarded
    def _before_forward(self, *_: Any) -> None:
        if self._stepping:
            self._track.enter("forward")

    @guarded
    def _after_forward(self, *_: Any) -> None:
        if self._stepping:
            self._track.enter("backward")
