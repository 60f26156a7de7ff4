"""F25 to F31: collectives, start, numerics and training state, and monitoring itself."""

from __future__ import annotations

from everstep.core.actions import ActionKind
from everstep.core.events import Direction, EntityKind
from everstep.core.faults.rates import prior
from everstep.core.faults.spec import Fault, Symptom

JOB_FAULTS: tuple[Fault, ...] = (
    Fault(
        id="F25",
        name="collective_hang",
        root_kind=(
            EntityKind.RANK,
            EntityKind.GROUP,
            EntityKind.PROCESS,
            EntityKind.JOB,
        ),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_train_steps_total", direction=Direction.STOP),
            Symptom(metric="everstep_gpu_power_watts", direction=Direction.LOW, note="while utilisation stays 1"),
            Symptom(metric="everstep_rdma_bytes_total", direction=Direction.STOP),
            Symptom(metric="everstep_train_collective_sequence", direction=Direction.STOP, note="one rank lags"),
        ),
        propagation=(
            "rank",
            "group",
            "job",
        ),
        default_actions=(
            ActionKind.RESTART_PROCESS,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="dump the stacks, restart the processes from the last verified checkpoint; the third time page a person",
        forbidden="isolate a node on first sight; wait for the library watchdog",
        prior_per_gpu_hour=prior("F25"),
        software=True,
    ),
    Fault(
        id="F26",
        name="startup_failure",
        root_kind=(
            EntityKind.SERVICE,
            EntityKind.PROCESS,
            EntityKind.JOB,
        ),
        severity=1,
        symptoms=(
            Symptom(
                metric="everstep_train_last_step_timestamp_seconds", direction=Direction.ABSENT, note="no first step"
            ),
            Symptom(
                metric="everstep_gpu_memory_used_bytes",
                direction=Direction.HIGH,
                note="held by an orphan",
                absent_ok=True,
            ),
            Symptom(metric="everstep_worker_exit_reason", direction=Direction.CHANGE),
        ),
        propagation=(
            "launch",
            "job",
        ),
        default_actions=(ActionKind.RESTART_PROCESS,),
        remedy="retry, clean up",
        forbidden="treat as hardware; start without a deadline",
        prior_per_gpu_hour=prior("F26"),
        software=True,
    ),
    Fault(
        id="F27",
        name="loss_instability",
        root_kind=(
            EntityKind.BATCH,
            EntityKind.JOB,
        ),
        severity=2,
        symptoms=(
            Symptom(
                metric="everstep_train_update_norm", direction=Direction.HIGH, note="leads the loss", absent_ok=True
            ),
            Symptom(metric="everstep_train_gradient_norm", direction=Direction.HIGH),
            Symptom(metric="everstep_train_loss", direction=Direction.HIGH),
        ),
        propagation=(
            "optimizer",
            "model",
        ),
        default_actions=(
            ActionKind.WATCH,
            ActionKind.SKIP_BATCH,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="watch, then skip the batch, then roll back",
        forbidden="roll back a spike that recovers by itself",
        prior_per_gpu_hour=prior("F27"),
        software=True,
    ),
    Fault(
        id="F28",
        name="nonfinite_numerics",
        root_kind=(
            EntityKind.BATCH,
            EntityKind.RANK,
            EntityKind.GPU,
            EntityKind.JOB,
        ),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_train_loss_scale", direction=Direction.LOW, note="halves", absent_ok=True),
            Symptom(metric="everstep_train_skipped_steps_total", direction=Direction.HIGH, absent_ok=True),
            Symptom(metric="everstep_train_gradient_norm", direction=Direction.CHANGE),
            Symptom(metric="everstep_train_nonfinite_steps_total", direction=Direction.HIGH),
        ),
        propagation=(
            "numerics",
            "model",
        ),
        default_actions=(
            ActionKind.SKIP_BATCH,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="resume from the last verified checkpoint without the batch; replay it to tell numerics from hardware",
        forbidden="resume unchanged a third time; save a checkpoint that holds NaN",
        prior_per_gpu_hour=prior("F28"),
        software=True,
    ),
    Fault(
        id="F29",
        name="bad_resume",
        root_kind=(
            EntityKind.JOB,
            EntityKind.CHECKPOINT,
        ),
        severity=2,
        symptoms=(
            Symptom(
                metric="everstep_train_learning_rate", direction=Direction.CHANGE, note="exactly at a restart mark"
            ),
            Symptom(metric="everstep_train_loss", direction=Direction.CHANGE, note="exactly at a restart mark"),
            Symptom(metric="everstep_train_batch_index", direction=Direction.CHANGE),
        ),
        propagation=(
            "trainer",
            "model",
        ),
        default_actions=(
            ActionKind.ROLLBACK_CHECKPOINT,
            ActionKind.PAGE_HUMAN,
        ),
        remedy="roll back with the state fixed, and page the owner",
        forbidden="roll back again with the same defect",
        prior_per_gpu_hour=prior("F29"),
        software=True,
    ),
    Fault(
        id="F30",
        name="silent_data_corruption",
        root_kind=(
            EntityKind.GPU,
            EntityKind.RANK,
        ),
        severity=2,
        symptoms=(
            Symptom(metric="everstep_train_replica_checksum_mismatches_total", direction=Direction.HIGH),
            Symptom(metric="everstep_train_loss", direction=Direction.CHANGE, note="odd, or nothing", absent_ok=True),
            Symptom(
                metric="everstep_train_gradient_norm",
                direction=Direction.CHANGE,
                note="odd, or nothing",
                absent_ok=True,
            ),
        ),
        propagation=(
            "gpu",
            "gradients",
            "replicas",
        ),
        default_actions=(
            ActionKind.ISOLATE_NODE,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="replay to confirm, isolate the node, roll back to before the onset",
        forbidden="resume from a checkpoint made after the onset",
        prior_per_gpu_hour=prior("F30"),
    ),
    Fault(
        id="F31",
        name="monitoring_fault",
        root_kind=(
            EntityKind.SERVICE,
            EntityKind.NODE,
        ),
        severity=3,
        symptoms=(
            Symptom(metric="everstep_gpu_last_sample_timestamp_seconds", direction=Direction.STOP),
            Symptom(metric="everstep_detector_samples_rejected_total", direction=Direction.HIGH),
            Symptom(
                metric="everstep_detector_series_missing", direction=Direction.HIGH, note="training metrics stay normal"
            ),
        ),
        propagation=(
            "exporter",
            "detector",
        ),
        default_actions=(
            ActionKind.WATCH,
            ActionKind.FIX_SERVICE,
        ),
        remedy="suppress, repair the exporter",
        forbidden="isolate, restart or roll back anything",
        prior_per_gpu_hour=prior("F31"),
        monitoring=True,
    ),
)
