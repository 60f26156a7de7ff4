"""F13 to F24: network, host, data and storage."""

from __future__ import annotations

from everstep.core.actions import ActionKind
from everstep.core.events import Direction, EntityKind
from everstep.core.faults.rates import prior
from everstep.core.faults.spec import Fault, Symptom

HOST_FAULTS: tuple[Fault, ...] = (
    Fault(
        id="F13",
        name="nic_down",
        root_kind=(EntityKind.NIC,),
        severity=1,
        symptoms=(
            Symptom(
                metric="everstep_net_port_errors_total", direction=Direction.HIGH, labels=(("kind", "link_downed"),)
            ),
            Symptom(
                metric="everstep_net_bytes_total", direction=Direction.STOP, note="0 on one rail, the others carry more"
            ),
        ),
        propagation=(
            "nic",
            "node",
            "ring",
            "job",
        ),
        default_actions=(ActionKind.ISOLATE_NODE,),
        remedy="re-initialise the adapter once, then isolate the node",
        forbidden="wait for the failed-over rail to come back by itself",
        prior_per_gpu_hour=prior("F13"),
    ),
    Fault(
        id="F14",
        name="link_flap",
        root_kind=(
            EntityKind.LINK,
            EntityKind.NIC,
        ),
        severity=1,
        symptoms=(
            Symptom(
                metric="everstep_net_port_errors_total", direction=Direction.HIGH, labels=(("kind", "link_downed"),)
            ),
            Symptom(metric="everstep_net_latency_seconds", direction=Direction.HIGH, note="spikes"),
            Symptom(
                metric="everstep_train_step_duration_seconds", direction=Direction.HIGH, note="spikes, a crash later"
            ),
        ),
        propagation=(
            "cable",
            "ports",
            "job",
        ),
        default_actions=(
            ActionKind.WATCH,
            ActionKind.ISOLATE_NODE,
        ),
        remedy="watch first; twice within 5 minutes: isolate the port or the node",
        forbidden="isolate after a single flap; isolate both ends",
        prior_per_gpu_hour=prior("F14"),
    ),
    Fault(
        id="F15",
        name="fabric_congestion",
        root_kind=(
            EntityKind.LEAF,
            EntityKind.SPINE,
        ),
        severity=2,
        symptoms=(
            Symptom(
                metric="everstep_net_latency_seconds", direction=Direction.HIGH, note="99th percentile, on all nodes"
            ),
            Symptom(
                metric="everstep_net_port_errors_total",
                direction=Direction.HIGH,
                labels=(("kind", "transmit_discard"),),
            ),
            Symptom(metric="everstep_train_step_duration_seconds", direction=Direction.HIGH, note="jitter"),
        ),
        propagation=(
            "switch",
            "nodes",
            "job",
        ),
        default_actions=(ActionKind.PAGE_HUMAN,),
        remedy="page the network team",
        forbidden="isolate any node",
        prior_per_gpu_hour=prior("F15"),
    ),
    Fault(
        id="F16",
        name="switch_failure",
        root_kind=(
            EntityKind.LEAF,
            EntityKind.SPINE,
        ),
        severity=1,
        symptoms=(
            Symptom(
                metric="everstep_net_port_errors_total",
                direction=Direction.HIGH,
                labels=(("kind", "link_downed"),),
                note="on several nodes under one leaf at once",
            ),
            Symptom(metric="everstep_train_steps_total", direction=Direction.STOP),
        ),
        propagation=(
            "switch",
            "nodes",
            "job",
        ),
        default_actions=(
            ActionKind.RESCALE,
            ActionKind.PAGE_HUMAN,
        ),
        remedy="continue without the leaf or move the job, and page a person",
        forbidden="isolate the nodes one by one as separate faults",
        prior_per_gpu_hour=prior("F16"),
    ),
    Fault(
        id="F17",
        name="host_memory_leak",
        root_kind=(
            EntityKind.PROCESS,
            EntityKind.NODE,
        ),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_host_memory_available_bytes", direction=Direction.LOW, note="steady fall"),
            Symptom(
                metric="everstep_pressure_stalled_seconds_total",
                direction=Direction.HIGH,
                labels=(("resource", "memory"),),
            ),
            Symptom(metric="everstep_host_oom_kills_total", direction=Direction.HIGH),
            Symptom(metric="everstep_train_steps_total", direction=Direction.STOP),
        ),
        propagation=(
            "process",
            "node",
            "job",
        ),
        default_actions=(ActionKind.RESTART_PROCESS,),
        remedy="planned restart before exhaustion",
        forbidden="act on a plateau; blame hardware when all nodes share the slope",
        prior_per_gpu_hour=prior("F17"),
        software=True,
    ),
    Fault(
        id="F18",
        name="host_crash",
        root_kind=(EntityKind.NODE,),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_agent_up", direction=Direction.LOW, note="all series of the node vanish together"),
            Symptom(metric="everstep_train_steps_total", direction=Direction.STOP),
        ),
        propagation=(
            "node",
            "job",
        ),
        default_actions=(
            ActionKind.ISOLATE_NODE,
            ActionKind.ROLLBACK_CHECKPOINT,
        ),
        remedy="isolate the node, resume from the last verified checkpoint on a spare",
        forbidden="treat a failed scrape alone as a crash",
        prior_per_gpu_hour=prior("F18"),
    ),
    Fault(
        id="F19",
        name="cpu_contention",
        root_kind=(
            EntityKind.PROCESS,
            EntityKind.NODE,
        ),
        severity=2,
        symptoms=(
            Symptom(metric="everstep_train_phase_seconds_total", direction=Direction.HIGH, note="periodic rank skew"),
            Symptom(
                metric="everstep_pressure_stalled_seconds_total",
                direction=Direction.HIGH,
                labels=(("resource", "cpu"),),
            ),
        ),
        propagation=(
            "host",
            "step",
        ),
        default_actions=(ActionKind.FIX_SERVICE,),
        remedy="align garbage collection, remove the neighbour",
        forbidden="isolate the node as a slow GPU",
        prior_per_gpu_hour=prior("F19"),
        software=True,
    ),
    Fault(
        id="F20",
        name="data_loader_stall",
        root_kind=(
            EntityKind.OBJECT_STORE,
            EntityKind.MOUNT,
            EntityKind.PROCESS,
        ),
        severity=2,
        symptoms=(
            Symptom(metric="everstep_train_phase_seconds_total", direction=Direction.HIGH, labels=(("phase", "data"),)),
            Symptom(
                metric="everstep_storage_transferred_bytes_total",
                direction=Direction.LOW,
                labels=(("direction", "read"),),
            ),
            Symptom(metric="everstep_gpu_utilization_ratio", direction=Direction.LOW, note="dips"),
            Symptom(metric="everstep_train_step_duration_seconds", direction=Direction.HIGH, note="bimodal"),
        ),
        propagation=(
            "storage",
            "loader",
            "job",
        ),
        default_actions=(
            ActionKind.FIX_SERVICE,
            ActionKind.RESTART_PROCESS,
        ),
        remedy="repair the storage, restart the loader",
        forbidden="act on GPUs or nodes",
        prior_per_gpu_hour=prior("F20"),
        software=True,
    ),
    Fault(
        id="F21",
        name="filesystem_stall",
        root_kind=(
            EntityKind.MOUNT,
            EntityKind.STORAGE_SERVER,
        ),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_storage_latency_seconds", direction=Direction.HIGH),
            Symptom(metric="everstep_host_blocked_tasks", direction=Direction.HIGH),
            Symptom(
                metric="everstep_train_phase_seconds_total", direction=Direction.HIGH, labels=(("phase", "checkpoint"),)
            ),
        ),
        propagation=(
            "filesystem",
            "nodes",
        ),
        default_actions=(
            ActionKind.RETRY_IO,
            ActionKind.PAGE_HUMAN,
        ),
        remedy="retry, stage to the local disk, page a person",
        forbidden="isolate nodes; kill the job during a save that can be skipped",
        prior_per_gpu_hour=prior("F21"),
    ),
    Fault(
        id="F22",
        name="checkpoint_save_failure",
        root_kind=(
            EntityKind.CHECKPOINT,
            EntityKind.MOUNT,
        ),
        severity=1,
        symptoms=(
            Symptom(
                metric="everstep_checkpoint_duration_seconds",
                direction=Direction.ABSENT,
                labels=(("op", "save"),),
                note="no end",
            ),
            Symptom(metric="everstep_checkpoint_last_success_timestamp_seconds", direction=Direction.STOP),
        ),
        propagation=(
            "filesystem",
            "job",
        ),
        default_actions=(
            ActionKind.RETRY_IO,
            ActionKind.PAGE_HUMAN,
        ),
        remedy="end the save at its timeout, fall back to a synchronous one",
        forbidden="treat the unfinished save as valid",
        prior_per_gpu_hour=prior("F22"),
        software=True,
    ),
    Fault(
        id="F23",
        name="checkpoint_corrupt",
        root_kind=(EntityKind.CHECKPOINT,),
        severity=1,
        symptoms=(
            Symptom(
                metric="everstep_checkpoint_last_step",
                direction=Direction.CHANGE,
                note="a copy that does not verify, a load error",
            ),
            Symptom(
                metric="everstep_train_loss",
                direction=Direction.CHANGE,
                note="a jump at a restart mark",
                absent_ok=True,
            ),
        ),
        propagation=(
            "checkpoint",
            "restart",
        ),
        default_actions=(ActionKind.ROLLBACK_CHECKPOINT,),
        remedy="resume from the previous valid copy",
        forbidden="retry the same file; delete the only other copy",
        prior_per_gpu_hour=prior("F23"),
        software=True,
    ),
    Fault(
        id="F24",
        name="disk_full",
        root_kind=(EntityKind.MOUNT,),
        severity=1,
        symptoms=(
            Symptom(metric="everstep_filesystem_available_ratio", direction=Direction.LOW, labels=(("kind", "bytes"),)),
            Symptom(
                metric="everstep_filesystem_available_ratio", direction=Direction.LOW, labels=(("kind", "inodes"),)
            ),
            Symptom(metric="everstep_checkpoint_last_success_timestamp_seconds", direction=Direction.STOP),
            Symptom(metric="everstep_train_restarts_total", direction=Direction.HIGH, note="crash loop"),
        ),
        propagation=(
            "quota",
            "save",
            "restart",
        ),
        default_actions=(ActionKind.PAGE_HUMAN,),
        remedy="page a person, clean up by policy",
        forbidden="restart in a loop; look only at bytes",
        prior_per_gpu_hour=prior("F24"),
        software=True,
    ),
)
