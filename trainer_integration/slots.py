"""Where the callback's numbers stand in a rank record, looked up once from the core's layout."""

from __future__ import annotations

from itertools import product

from everstep.core.metrics.control import CHECKPOINT_BUCKETS, CHECKPOINT_OPS, CHECKPOINT_OUTCOMES, TIERS
from everstep.core.metrics.training import PHASES, STATES, STEP_BUCKETS
from everstep.core.rank_record import SLOTS


def _gauge(name: str) -> int:
    return SLOTS[(f"everstep_train_{name}", ())]


LOSS = _gauge("loss")
GRADIENT_NORM = _gauge("gradient_norm")
LEARNING_RATE = _gauge("learning_rate")
TOKENS = _gauge("tokens_total")
UTILIZATION = _gauge("model_flops_utilization_ratio")
LAST_STEP_AT = _gauge("last_step_timestamp_seconds")
NONFINITE_STEPS = _gauge("nonfinite_steps_total")
STEPS = _gauge("steps_total")
ATTEMPT = _gauge("attempt")
COMPUTE = _gauge("step_compute_seconds")
COLLECTIVES = _gauge("collective_sequence")
BATCH = _gauge("batch_index")
SAMPLE_HASH = _gauge("sample_hash")
NONFINITE_BATCH = _gauge("nonfinite_batch")
NONFINITE_INPUT = _gauge("nonfinite_input")
SKIPPED = _gauge("skipped_steps_total")
UPDATE_NORM = _gauge("update_norm")
LOCAL_GRADIENT_NORM = _gauge("local_gradient_norm")
LOSS_SCALE = _gauge("loss_scale")
MISMATCHES = _gauge("replica_checksum_mismatches_total")
GPU_MEMORY_ALLOCATED = SLOTS[("everstep_gpu_memory_allocated_bytes", ("allocated",))]
GPU_MEMORY_RESERVED = SLOTS[("everstep_gpu_memory_allocated_bytes", ("reserved",))]
NOT_OFFERED = (UPDATE_NORM, LOCAL_GRADIENT_NORM, LOSS_SCALE, GPU_MEMORY_ALLOCATED, GPU_MEMORY_RESERVED)
"""Optional gauges that a loop may leave out; NaN until it offers them."""

PHASE = {phase: SLOTS[("everstep_train_phase_seconds_total", (phase,))] for phase in PHASES}
STATE = {state: SLOTS[("everstep_train_state", (state,))] for state in STATES}
LAST_CHECKPOINT = {tier: SLOTS[("everstep_checkpoint_last_step", (tier,))] for tier in ("memory", "disk")}

_DURATION = "everstep_train_step_duration_seconds"
DURATION_BOUNDS = STEP_BUCKETS
DURATION_BUCKETS = (*(SLOTS[(_DURATION, (repr(bound),))] for bound in STEP_BUCKETS), SLOTS[(_DURATION, ("+Inf",))])
DURATION_SUM = SLOTS[(_DURATION, ("sum",))]
DURATION_COUNT = SLOTS[(_DURATION, ("count",))]

CHECKPOINT_AT = {tier: SLOTS[("everstep_checkpoint_last_success_timestamp_seconds", (tier,))] for tier in TIERS}
CHECKPOINT_BOUNDS = CHECKPOINT_BUCKETS


def _checkpoint(labels: tuple[str, ...]) -> tuple[tuple[int, ...], int, int]:
    def slot(bound: str) -> int:
        return SLOTS[("everstep_checkpoint_duration_seconds", (*labels, bound))]

    return (*(slot(repr(bound)) for bound in CHECKPOINT_BOUNDS), slot("+Inf")), slot("sum"), slot("count")


CHECKPOINT_DURATION = {labels: _checkpoint(labels) for labels in product(TIERS, CHECKPOINT_OPS, CHECKPOINT_OUTCOMES)}
"""(tier, op, outcome) to the slots of the buckets, of the sum and of the count."""
