"""Where the callback's numbers stand in a rank record, looked up once from the core's layout."""

from __future__ import annotations

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
NOT_OFFERED = tuple(_gauge(name) for name in ("update_norm", "local_gradient_norm", "loss_scale"))
"""Optional gauges that a loop may leave out; NaN until it offers them."""

PHASE = {phase: SLOTS[("everstep_train_phase_seconds_total", (phase,))] for phase in PHASES}
STATE = {state: SLOTS[("everstep_train_state", (state,))] for state in STATES}
LAST_CHECKPOINT = {tier: SLOTS[("everstep_checkpoint_last_step", (tier,))] for tier in ("memory", "disk")}

_DURATION = "everstep_train_step_duration_seconds"
DURATION_BOUNDS = STEP_BUCKETS
DURATION_BUCKETS = (*(SLOTS[(_DURATION, (repr(bound),))] for bound in STEP_BUCKETS), SLOTS[(_DURATION, ("+Inf",))])
DURATION_SUM = SLOTS[(_DURATION, ("sum",))]
DURATION_COUNT = SLOTS[(_DURATION, ("count",))]
