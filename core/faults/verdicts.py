"""Two legal verdicts outside the 31 kinds: software without hardware evidence, and unknown."""

from __future__ import annotations

from everstep.core.actions import ActionKind
from everstep.core.events import Direction, EntityKind
from everstep.core.faults.rates import prior
from everstep.core.faults.spec import Fault, Symptom

SOFTWARE = Fault(
    id="SOFTWARE",
    name="process_exit",
    root_kind=(EntityKind.RANK, EntityKind.PROCESS, EntityKind.JOB),
    severity=1,
    symptoms=(
        Symptom(metric="everstep_worker_state", direction=Direction.CHANGE, note="exited or killed"),
        Symptom(metric="everstep_worker_exit_code", direction=Direction.CHANGE),
        Symptom(metric="everstep_train_steps_total", direction=Direction.STOP),
    ),
    propagation=("process", "rank", "job"),
    default_actions=(ActionKind.RESTART_PROCESS, ActionKind.ROLLBACK_CHECKPOINT),
    remedy="restart on the same nodes from the last verified checkpoint; evict nobody",
    forbidden="isolate a node without hardware evidence",
    prior_per_gpu_hour=prior("SOFTWARE"),
    software=True,
)

UNKNOWN = Fault(
    id="UNKNOWN",
    name="unknown",
    root_kind=(EntityKind.UNKNOWN, EntityKind.JOB),
    severity=1,
    symptoms=(Symptom(metric="everstep_train_steps_total", direction=Direction.STOP),),
    propagation=("unknown", "job"),
    default_actions=(ActionKind.RESTART_PROCESS, ActionKind.ROLLBACK_CHECKPOINT, ActionKind.PAGE_HUMAN),
    remedy="keep the evidence, restart from the last verified checkpoint, page when it happens again",
    forbidden="isolate a node; wait for an explanation before restarting",
    prior_per_gpu_hour=prior("UNKNOWN"),
    software=True,
)
