"""What the callbacks for frameworks share: which phase is open, when a step begins and ends, what a pause is."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from everstep.trainer_integration.callback import EverstepCallback

_NOTHING: AbstractContextManager[None] = nullcontext()
_RUNNING = {"warmup", "steady"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One finished optimizer step.

    `tokens` is the job's total, `flops` this rank's work in the step, `nonfinite` says that loss or gradient was not
    finite and `input_nonfinite` that this rank's own input was not either.
    """

    step: int
    loss: float
    gradient_norm: float = math.nan
    learning_rate: float = 0.0
    tokens: int = 0
    batch_index: int = 0
    flops: float = 0.0
    nonfinite: bool = False
    input_nonfinite: bool = False


class StepTracker:
    """Turns the hooks of a framework into calls of one `EverstepCallback`.

    A step's clock starts when the step before has ended, so the wait for its data counts; evaluation and checkpoints
    between two steps do not. At most one phase is open. One thread only; errors are for the caller to hold back.
    """

    def __init__(self, callback: EverstepCallback) -> None:
        self._callback = callback
        self._open = _NOTHING
        self._save = _NOTHING
        self._state = "init"
        self._in_step = False
        self._batch = 0

    def start(self, *, step: int, tokens: int, batch_index: int) -> None:
        """The loop takes its first step after `step` finished ones."""
        self._callback.on_train_start(step=step, tokens=tokens)
        self._state = "warmup"
        self._in_step = False
        self.wait_for_data(batch_index)

    def enter(self, phase: str) -> None:
        """Time this phase from now on; the one that was open ends."""
        self.leave()
        self._open = self._callback.phase(phase)
        self._open.__enter__()

    def leave(self) -> None:
        """End the open phase."""
        opened, self._open = self._open, _NOTHING
        opened.__exit__(None, None, None)

    def wait_for_data(self, batch_index: int) -> None:
        """The loop fetches this batch; it begins a step unless the step before is still accumulating."""
        if self._state not in _RUNNING:
            return
        self._batch = batch_index
        if not self._in_step:
            self._callback.step_begin(batch_index)
        self.enter("data")

    def begin_batch(self) -> None:
        """The data is there."""
        self.leave()
        self._in_step = True

    def finish(self, report: StepReport) -> None:
        """An optimizer step has ended."""
        self.leave()
        self._in_step = False
        if report.nonfinite:
            self._callback.on_nonfinite(report.batch_index, report.input_nonfinite, loss=report.loss)
        self._callback.step_end(
            report.step,
            loss=report.loss,
            gradient_norm=report.gradient_norm,
            learning_rate=report.learning_rate,
            tokens=report.tokens,
            batch_index=report.batch_index,
            flops=report.flops,
        )
        if self._state == "warmup":
            self._state = "steady"
            self._callback.state(self._state)

    def pause(self, activity: str) -> None:
        """The loop does something else: `evaluation` or `checkpoint`, which is a save."""
        self.enter(activity)
        self._save = self._callback.checkpoint("disk", "save") if activity == "checkpoint" else _NOTHING
        self._save.__enter__()
        self._callback.state(activity)

    def resume(self, error: BaseException | None = None) -> None:
        """The pause is over; `error` is what ended a save."""
        self.leave()
        save, self._save = self._save, _NOTHING
        save.__exit__(type(error) if error else None, error, None)
        self._callback.state(self._state)
        self.wait_for_data(self._batch)

    def saved(self, step: int) -> None:
        """`step` can be resumed from disk."""
        self._callback.on_checkpoint("disk", step)

    def stop(self) -> None:
        """No step follows; the record stays open for another run of the loop."""
        self.leave()
        self._state = "idle"
        self._callback.state(self._state)

    def close(self) -> None:
        self.leave()
        self._callback.close()
