"""F01 to F12: GPUs, their memory, links, cooling and power."""

from __future__ import annotations

from everstep.core.actions import ActionKind
from everstep.core.events import Direction, EntityKind
from everstep.core.faults.rates import prior
from everstep.core.faults.spec import Fault, Symptom

GPU_FAULTS: tuple[Fault, ...] = (
    Fault(
        id="F01",
        name="gpu_lost",
        root_kind=(EntityKind.GPU,),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_gpu_up", direction=Direction.LOW),
            Symptom(
                metric="everstep_gpus_expected", direction=Direction.ABSENT, note="fewer GPUs present than expected"
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "79"),),
                note="may never come",
                absent_ok=True,
            ),
            Symptom(metric="everstep_train_steps_total", direction=Direction.STOP),
        ),
        propagation=(
            "gpu",
            "node",
            "ring",
            "job",
        ),
        default_actions=(
            ActionKind.ISOLATE_NODE,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="isolate the node, resume from the last verified checkpoint",
        forbidden="wait for an XID that may never come; retry on the same node; blame the NVSwitch that reports second",
        prior_per_gpu_hour=prior("F01"),
    ),
    Fault(
        id="F02",
        name="gpu_driver_hang",
        root_kind=(EntityKind.GPU,),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_agent_scrape_duration_seconds", direction=Direction.HIGH),
            Symptom(
                metric="everstep_gpu_last_sample_timestamp_seconds", direction=Direction.STOP, note="values freeze"
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "119"),),
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "120"),),
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "62"),),
                absent_ok=True,
            ),
            Symptom(metric="everstep_train_steps_total", direction=Direction.STOP),
        ),
        propagation=(
            "gpu",
            "exporter",
            "job",
        ),
        default_actions=(
            ActionKind.RESET_GPU,
            ActionKind.ISOLATE_NODE,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="reset the GPU, isolate the node when the reset fails, resume from the last verified checkpoint",
        forbidden="return the GPU to the vendor; trust frozen values; run blocking health checks without a timeout",
        prior_per_gpu_hour=prior("F02"),
    ),
    Fault(
        id="F03",
        name="hbm_contained_error",
        root_kind=(EntityKind.GPU,),
        severity=1,
        symptoms=(
            Symptom(
                metric="everstep_gpu_ecc_errors_total", direction=Direction.HIGH, labels=(("type", "uncorrected"),)
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "94"),),
                absent_ok=True,
            ),
            Symptom(metric="everstep_worker_exit_reason", direction=Direction.CHANGE, note="one rank exits"),
        ),
        propagation=(
            "gpu",
            "process",
            "job",
        ),
        default_actions=(
            ActionKind.RESTART_APP,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="restart the application on the same node from the last verified checkpoint",
        forbidden="isolate the node for one event; count it towards repeat offenders",
        prior_per_gpu_hour=prior("F03"),
    ),
    Fault(
        id="F04",
        name="hbm_uncontained_error",
        root_kind=(EntityKind.GPU,),
        severity=1,
        symptoms=(
            Symptom(
                metric="everstep_gpu_ecc_errors_total", direction=Direction.HIGH, labels=(("type", "uncorrected"),)
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "48"),),
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "95"),),
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "140"),),
                absent_ok=True,
            ),
            Symptom(metric="everstep_worker_state", direction=Direction.CHANGE, note="one rank exits"),
        ),
        propagation=(
            "gpu",
            "process",
            "job",
        ),
        default_actions=(
            ActionKind.RESET_GPU,
            ActionKind.ISOLATE_NODE,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="reset the GPU, or isolate the node on repeat, and resume from the last verified checkpoint",
        forbidden="restart on the GPU without a reset",
        prior_per_gpu_hour=prior("F04"),
    ),
    Fault(
        id="F05",
        name="hbm_remap_pending",
        root_kind=(EntityKind.GPU,),
        severity=3,
        symptoms=(
            Symptom(metric="everstep_gpu_row_remap_state", direction=Direction.HIGH, labels=(("state", "pending"),)),
            Symptom(metric="everstep_gpu_ecc_errors_total", direction=Direction.HIGH, labels=(("type", "corrected"),)),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "63"),),
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "92"),),
                absent_ok=True,
            ),
        ),
        propagation=("gpu",),
        default_actions=(ActionKind.WATCH,),
        remedy="watch; drain at the next checkpoint",
        forbidden="interrupt the job now",
        prior_per_gpu_hour=prior("F05"),
    ),
    Fault(
        id="F06",
        name="hbm_remap_failure",
        root_kind=(EntityKind.GPU,),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_gpu_row_remap_state", direction=Direction.HIGH, labels=(("state", "failure"),)),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "64"),),
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_ecc_aggregate_errors_total",
                direction=Direction.HIGH,
                labels=(("type", "uncorrected"),),
                note="SRAM, above 4",
                absent_ok=True,
            ),
        ),
        propagation=(
            "gpu",
            "job",
        ),
        default_actions=(
            ActionKind.ISOLATE_NODE,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="isolate the node and return the GPU to the vendor",
        forbidden="return the node after a clean reboot",
        prior_per_gpu_hour=prior("F06"),
    ),
    Fault(
        id="F07",
        name="nvlink_error",
        root_kind=(
            EntityKind.LINK,
            EntityKind.NVLINK_DOMAIN,
            EntityKind.GPU,
        ),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_gpu_nvlink_errors_total", direction=Direction.HIGH),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "74"),),
                note="on both peers in the same millisecond",
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "144"),),
                note="on both peers in the same millisecond",
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "145"),),
                note="on both peers in the same millisecond",
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "146"),),
                note="on both peers in the same millisecond",
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "147"),),
                note="on both peers in the same millisecond",
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "148"),),
                note="on both peers in the same millisecond",
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "149"),),
                note="on both peers in the same millisecond",
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "150"),),
                note="on both peers in the same millisecond",
                absent_ok=True,
            ),
            Symptom(
                metric="everstep_gpu_xid_errors_total",
                direction=Direction.HIGH,
                labels=(("xid", "45"),),
                note="the victims, within a second",
                absent_ok=True,
            ),
            Symptom(metric="everstep_train_steps_total", direction=Direction.STOP),
        ),
        propagation=(
            "link",
            "pair",
            "node",
            "job",
        ),
        default_actions=(
            ActionKind.RESET_GPU,
            ActionKind.ISOLATE_NODE,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="reset the GPUs or isolate the node, resume from the last verified checkpoint",
        forbidden="isolate by the XID 45 of the victims; restart without a reset",
        prior_per_gpu_hour=prior("F07"),
    ),
    Fault(
        id="F08",
        name="fabric_manager_down",
        root_kind=(
            EntityKind.SERVICE,
            EntityKind.NODE,
        ),
        severity=2,
        symptoms=(
            Symptom(metric="everstep_gpu_nvlink_bytes_total", direction=Direction.STOP),
            Symptom(
                metric="everstep_train_phase_seconds_total", direction=Direction.HIGH, labels=(("phase", "collective"),)
            ),
            Symptom(
                metric="everstep_train_step_duration_seconds",
                direction=Direction.HIGH,
                note="every other GPU gauge nominal",
            ),
        ),
        propagation=(
            "service",
            "node",
            "job",
        ),
        default_actions=(
            ActionKind.FIX_SERVICE,
            ActionKind.ISOLATE_NODE,
        ),
        remedy="start the service and reset the GPUs, else isolate the node",
        forbidden="return GPUs to the vendor; restart the job before the GPUs are reset",
        prior_per_gpu_hour=prior("F08"),
    ),
    Fault(
        id="F09",
        name="pcie_degraded",
        root_kind=(
            EntityKind.NODE,
            EntityKind.GPU,
            EntityKind.NIC,
        ),
        severity=2,
        symptoms=(
            Symptom(
                metric="everstep_gpu_pcie_link_width_lanes", direction=Direction.LOW, labels=(("bound", "current"),)
            ),
            Symptom(metric="everstep_gpu_pcie_replays_total", direction=Direction.HIGH),
            Symptom(metric="everstep_net_latency_seconds", direction=Direction.HIGH),
            Symptom(metric="everstep_train_phase_seconds_total", direction=Direction.HIGH, note="rank skew"),
        ),
        propagation=(
            "slot",
            "node",
            "ring",
        ),
        default_actions=(ActionKind.ISOLATE_NODE,),
        remedy="isolate the node at the next checkpoint",
        forbidden="judge the link generation when idle; stop the job at once",
        prior_per_gpu_hour=prior("F09"),
    ),
    Fault(
        id="F10",
        name="thermal_throttle",
        root_kind=(
            EntityKind.NODE,
            EntityKind.RACK,
            EntityKind.GPU,
        ),
        severity=2,
        symptoms=(
            Symptom(metric="everstep_host_fan_speed_ratio", direction=Direction.LOW, note="fan alarm", absent_ok=True),
            Symptom(metric="everstep_gpu_temperature_celsius", direction=Direction.HIGH),
            Symptom(metric="everstep_gpu_sm_clock_hertz", direction=Direction.LOW),
            Symptom(
                metric="everstep_gpu_throttled_seconds_total",
                direction=Direction.HIGH,
                labels=(("reason", "hw_thermal"),),
            ),
            Symptom(metric="everstep_train_step_compute_seconds", direction=Direction.HIGH, note="rank skew"),
        ),
        propagation=(
            "cooling",
            "gpu",
            "rack",
            "job",
        ),
        default_actions=(
            ActionKind.ISOLATE_NODE,
            ActionKind.PAGE_HUMAN,
        ),
        remedy="isolate the node; page a person when it is a whole rack",
        forbidden="isolate a whole rack automatically; replace the GPU",
        prior_per_gpu_hour=prior("F10"),
    ),
    Fault(
        id="F11",
        name="power_capped",
        root_kind=(
            EntityKind.NODE,
            EntityKind.RACK,
            EntityKind.GPU,
        ),
        severity=2,
        symptoms=(
            Symptom(metric="everstep_gpu_power_watts", direction=Direction.LOW, note="flat"),
            Symptom(metric="everstep_gpu_sm_clock_hertz", direction=Direction.LOW),
            Symptom(metric="everstep_gpu_temperature_celsius", direction=Direction.LOW, note="below its peers"),
            Symptom(
                metric="everstep_gpu_throttled_seconds_total",
                direction=Direction.HIGH,
                labels=(("reason", "power_brake"),),
                absent_ok=True,
            ),
        ),
        propagation=(
            "power",
            "node",
            "rack",
            "job",
        ),
        default_actions=(
            ActionKind.ISOLATE_NODE,
            ActionKind.PAGE_HUMAN,
        ),
        remedy="isolate the node, or page a person",
        forbidden="treat a software power cap at full draw as a fault",
        prior_per_gpu_hour=prior("F11"),
    ),
    Fault(
        id="F12",
        name="slow_gpu",
        root_kind=(
            EntityKind.GPU,
            EntityKind.RANK,
        ),
        severity=2,
        symptoms=(
            Symptom(metric="everstep_train_step_compute_seconds", direction=Direction.HIGH, note="one rank"),
            Symptom(
                metric="everstep_train_phase_seconds_total",
                direction=Direction.LOW,
                labels=(("phase", "collective"),),
                note="the rank that waits least",
            ),
            Symptom(
                metric="everstep_train_step_duration_seconds", direction=Direction.HIGH, note="a step change, no code"
            ),
        ),
        propagation=(
            "gpu",
            "rank",
            "job",
        ),
        default_actions=(
            ActionKind.MIGRATE_STATE,
            ActionKind.ISOLATE_NODE,
        ),
        remedy="confirm by a benchmark; move the rank to a spare, isolate the node when the benchmark agrees",
        forbidden="isolate on skew alone, without a confirming benchmark",
        prior_per_gpu_hour=prior("F12"),
    ),
)
