"""EverstepCallback: a training loop says what it does, a node agent reads it from shared memory.

    callback = EverstepCallback.from_environment()
    callback.on_train_start()
    for batch_index in ...:
        callback.step_begin(batch_index)
        with callback.phase("forward"): ...
        with callback.phase("backward"): ...
        callback.step_end(step, loss=..., gradient_norm=..., ...)

Without the agent's environment every hook does nothing. Hooks belong to one thread; together they cost under 20
microseconds a step.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from time import perf_counter, time

from everstep.core.errors import EverstepError
from everstep.core.rank_record import RankRecordWriter
from everstep.trainer_integration import slots
from everstep.trainer_integration.checkpoint_timer import CheckpointTimer, observe
from everstep.trainer_integration.guard import guarded
from everstep.trainer_integration.phase import ComputePhase, Phase

_LOGGER = logging.getLogger("everstep.callback")
_NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


class EverstepCallback:
    """Hooks of one rank. `failures` counts hook calls that went wrong; none of them reaches the loop."""

    def __init__(self, record: RankRecordWriter | None = None, *, attempt: int = 0, peak_flops: float = 0.0) -> None:
        """`record` None makes it inert; `peak_flops` is this rank's peak per second, 0 when it is not known."""
        self.failures = 0
        self._record = record
        self._peak_flops = peak_flops
        self._started = perf_counter()
        self._compute: tuple[ComputePhase, ...] = ()
        self._data_seen_s = 0.0
        self._phases: dict[str, AbstractContextManager[None]] = {}
        if record is not None:
            self._values = record.values
            self._prepare(record, attempt)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> EverstepCallback:
        """The callback that the agent's variables describe, an inert one when they are absent or unusable."""
        variables = os.environ if environment is None else environment
        path = variables.get("EVERSTEP_RANK_RECORD", "")
        if not path:
            return cls()
        try:
            attempt = int(variables.get("EVERSTEP_ATTEMPT", "0"))
            record = RankRecordWriter(
                Path(path),
                job=variables.get("EVERSTEP_JOB", "job"),
                rank=int(variables.get("RANK", "0")),
                world_size=int(variables.get("WORLD_SIZE", "1")),
                attempt=attempt,
            )
            return cls(record, attempt=attempt, peak_flops=float(variables.get("EVERSTEP_PEAK_FLOPS", "0")))
        except (OSError, ValueError, EverstepError):
            _LOGGER.exception("everstep callback: cannot write %s; training goes on without a rank record", path)
            return cls()

    def _prepare(self, record: RankRecordWriter, attempt: int) -> None:
        values = record.values
        values[slots.ATTEMPT] = attempt
        values[slots.NONFINITE_BATCH] = -1.0
        values[slots.UTILIZATION] = math.nan
        for slot in slots.LAST_CHECKPOINT.values():
            values[slot] = -1.0
        for slot in slots.NOT_OFFERED:
            values[slot] = math.nan
        self._set_state("init")
        self._compute = tuple(
            ComputePhase(values, slots.PHASE[name], slots.PHASE["collective"]) for name in ("forward", "backward")
        )
        self._phases = {name: Phase(values, slot) for name, slot in slots.PHASE.items()}
        self._phases.update(zip(("forward", "backward"), self._compute, strict=True))
        record.publish()

    @guarded
    def on_train_start(self, *, step: int = 0, tokens: int = 0, loss: float = 0.0, skipped: int = 0) -> None:
        """The loop is about to take its first step after `step` finished ones (0, or the restored position)."""
        if self._record is None:
            return
        values = self._values
        values[slots.STEPS] = step
        values[slots.TOKENS] = tokens
        values[slots.LOSS] = loss
        values[slots.SKIPPED] = skipped
        self._set_state("warmup")
        self._record.publish()

    @guarded
    def step_begin(self, batch_index: int) -> None:
        """The loop starts on this global batch."""
        if self._record is None:
            return
        for phase in self._compute:
            phase.compute_s = 0.0
        self._data_seen_s = self._values[slots.PHASE["data"]]
        self._values[slots.BATCH] = batch_index
        self._started = perf_counter()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A context manager that times one of data, forward, backward, collective, optimizer, checkpoint, evaluation.

        `forward` and `backward` keep the compute share, `collective` gets their wait; an unknown name times nothing.
        """
        return self._phases.get(name, _NOTHING)

    @guarded
    def collective(self, sequence: int) -> None:
        """The rank is about to enter its `sequence`-th collective; visible at once: a hang shows who is behind."""
        if self._record is None:
            return
        self._values[slots.COLLECTIVES] = sequence
        self._record.publish()

    @guarded
    def step_end(  # noqa: PLR0913 - called from other people's loops, where keywords read best
        self,
        step: int,
        *,
        loss: float,
        gradient_norm: float = math.nan,
        learning_rate: float = 0.0,
        tokens: int = 0,
        batch_index: int = 0,
        compute_s: float | None = None,
        sample_hash: int = 0,
        flops: float = 0.0,
    ) -> None:
        """Step number `step` (1, 2, ...) is finished.

        `tokens` is the job's total so far, `compute_s` the rank-local compute (default: what the forward and backward
        phases measured), `flops` this rank's floating-point work in the step.
        """
        record = self._record
        if record is None:
            return
        duration = perf_counter() - self._started
        end = time()
        if compute_s is None:
            compute_s = sum([phase.compute_s for phase in self._compute])
        values = self._values
        values[slots.LOSS] = loss
        values[slots.GRADIENT_NORM] = gradient_norm
        values[slots.LEARNING_RATE] = learning_rate
        values[slots.TOKENS] = tokens
        values[slots.STEPS] = step
        values[slots.COMPUTE] = compute_s
        values[slots.BATCH] = batch_index
        values[slots.SAMPLE_HASH] = sample_hash
        values[slots.LAST_STEP_AT] = end
        if self._peak_flops > 0.0 and flops > 0.0:
            values[slots.UTILIZATION] = flops / (duration * self._peak_flops)
        self._observe(duration)
        data = values[slots.PHASE["data"]] - self._data_seen_s
        record.add_step((step, end, duration, compute_s, data, loss, gradient_norm, batch_index))
        record.publish()

    def _observe(self, duration: float) -> None:
        values = self._values
        for slot in slots.DURATION_BUCKETS[bisect_left(slots.DURATION_BOUNDS, duration) :]:
            values[slot] += 1.0
        values[slots.DURATION_SUM] += duration
        values[slots.DURATION_COUNT] += 1.0

    @guarded
    def on_checkpoint(self, tier: str, step: int) -> None:
        """The rank knows `step` to be committed in tier `memory` or `disk`."""
        if self._record is None:
            return
        slot = slots.LAST_CHECKPOINT[tier]
        if self._values[slot] != step:
            self._values[slot] = step
            self._values[slots.CHECKPOINT_AT[tier]] = time()
        self._record.publish()

    def checkpoint(self, tier: str, op: str) -> AbstractContextManager[None]:
        """A context manager that times a `save` to or a `load` from tier memory, disk, local or remote.

        An error inside counts it as failed, a `TimeoutError` as timed out, and passes through; unknown words time
        nothing.
        """
        if self._record is None or (tier, op, "failed") not in slots.CHECKPOINT_DURATION:
            return _NOTHING
        return CheckpointTimer(self._values, tier, op)

    @guarded
    def on_unusable_checkpoint(self, tier: str) -> None:
        """A copy of that tier was passed over because it is damaged: a load that failed before it began."""
        if self._record is None:
            return
        observe(self._values, (tier, "load", "failed"), 0.0)
        self._record.publish()

    @guarded
    def on_nonfinite(self, batch: int, input_nonfinite: bool, *, loss: float = math.nan) -> None:
        """Loss or gradient on `batch` was not finite; `input_nonfinite`: this rank's own input was not either."""
        if self._record is None:
            return
        values = self._values
        values[slots.NONFINITE_STEPS] += 1.0
        values[slots.NONFINITE_BATCH] = batch
        values[slots.NONFINITE_INPUT] = float(input_nonfinite)
        values[slots.BATCH] = batch
        values[slots.LOSS] = loss
        self._record.publish()

    @guarded
    def on_extras(
        self,
        *,
        update_norm: float = math.nan,
        local_gradient_norm: float = math.nan,
        loss_scale: float = math.nan,
        gpu_allocated_bytes: float = math.nan,
        gpu_reserved_bytes: float = math.nan,
    ) -> None:
        """What not every loop can tell of its step; `step_end` makes it visible. NaN: not offered.

        The bytes are those of the framework's allocator.
        """
        if self._record is None:
            return
        values = self._values
        values[slots.UPDATE_NORM] = update_norm
        values[slots.LOCAL_GRADIENT_NORM] = local_gradient_norm
        values[slots.LOSS_SCALE] = loss_scale
        values[slots.GPU_MEMORY_ALLOCATED] = gpu_allocated_bytes
        values[slots.GPU_MEMORY_RESERVED] = gpu_reserved_bytes

    @guarded
    def on_checksum_mismatch(self) -> None:
        """This rank's parameters differ from those of its replicas; visible at once."""
        if self._record is None:
            return
        self._values[slots.MISMATCHES] += 1.0
        self._record.publish()

    @guarded
    def on_skip(self, total: int) -> None:
        """So many batches have been left out of the data order so far."""
        if self._record is None:
            return
        self._values[slots.SKIPPED] = total

    @guarded
    def state(self, name: str) -> None:
        """One of init, warmup, steady, evaluation, checkpoint, restart, idle; visible at once."""
        if self._record is None:
            return
        self._set_state(name)
        self._record.publish()

    def _set_state(self, name: str) -> None:
        chosen = slots.STATE[name]
        for slot in slots.STATE.values():
            self._values[slot] = float(slot == chosen)

    @guarded
    def close(self) -> None:
        """Publish what is pending and let go of the record; its file stays for the agent to read."""
        record, self._record = self._record, None
        self._phases = {}
        if record is not None:
            record.publish()
            record.close()
