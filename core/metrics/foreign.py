"""Other exporters' series and what they become: one mapping for the recording rules and for ingest.

Only mappings that rebuild our metric are rows. What loses information (last-code XID gauge, mean latency, violation
counters whose unit changes by version) stands in `HINTS` and never becomes a series of ours by a rule.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """`(theirs [+ plus] [/ divided_by]) * factor` is `ours` with `labels` set and labels `renamed` (from, to).

    `unverified` names are from general knowledge: check them against the installed exporter. `partial` says what of our
    metric the row cannot give; `off` that the exporter leaves the series out unless it is configured. Devices that
    match `not_devices` as a whole are left out: loopback, and IP over InfiniBand, whose bytes the port counts itself.
    """

    theirs: str
    ours: str
    factor: float = 1.0
    plus: str = ""
    divided_by: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    unverified: bool = False
    partial: str = ""
    off: bool = False
    not_devices: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A foreign series from which a metric of ours cannot be rebuilt, and why; `ours` is empty where there is none."""

    theirs: str
    ours: str
    why: str


DCGM_RENAMED: tuple[tuple[str, str], ...] = (
    ("UUID", "uuid"),
    ("gpu_uuid", "uuid"),
    ("Hostname", "node"),
    ("hostname", "node"),
)
"""Spellings of different exporter versions."""

DCGM: tuple[Foreign, ...] = (
    Foreign(theirs="DCGM_FI_DEV_GPU_TEMP", ours="everstep_gpu_temperature_celsius", labels=(("sensor", "core"),)),
    Foreign(theirs="DCGM_FI_DEV_MEMORY_TEMP", ours="everstep_gpu_temperature_celsius", labels=(("sensor", "memory"),)),
    Foreign(theirs="DCGM_FI_DEV_POWER_USAGE", ours="everstep_gpu_power_watts"),
    Foreign(theirs="DCGM_FI_DEV_FB_USED", ours="everstep_gpu_memory_used_bytes", factor=1048576),
    Foreign(
        theirs="DCGM_FI_DEV_FB_USED",
        plus="DCGM_FI_DEV_FB_FREE",
        ours="everstep_gpu_memory_total_bytes",
        factor=1048576,
        unverified=True,
    ),
    Foreign(
        theirs="DCGM_FI_DEV_GPU_UTIL", ours="everstep_gpu_utilization_ratio", factor=0.01, labels=(("engine", "sm"),)
    ),
    Foreign(
        theirs="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        ours="everstep_gpu_utilization_ratio",
        labels=(("engine", "tensor"),),
        unverified=True,
        off=True,
    ),
    Foreign(theirs="DCGM_FI_DEV_SM_CLOCK", ours="everstep_gpu_sm_clock_hertz", factor=1000000.0),
    Foreign(
        theirs="DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        ours="everstep_gpu_ecc_errors_total",
        labels=(("type", "corrected"),),
        off=True,
    ),
    Foreign(
        theirs="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        ours="everstep_gpu_ecc_errors_total",
        labels=(("type", "uncorrected"),),
        off=True,
    ),
    Foreign(
        theirs="DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        ours="everstep_gpu_nvlink_errors_total",
        labels=(("kind", "crc_flit"),),
        off=True,
    ),
    Foreign(
        theirs="DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        ours="everstep_gpu_nvlink_errors_total",
        labels=(("kind", "crc_data"),),
        off=True,
    ),
    Foreign(
        theirs="DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        ours="everstep_gpu_nvlink_errors_total",
        labels=(("kind", "replay"),),
        off=True,
    ),
    Foreign(
        theirs="DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        ours="everstep_gpu_nvlink_errors_total",
        labels=(("kind", "recovery"),),
        off=True,
    ),
    Foreign(theirs="DCGM_FI_DEV_PCIE_REPLAY_COUNTER", ours="everstep_gpu_pcie_replays_total"),
    Foreign(
        theirs="DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        ours="everstep_gpu_row_remaps_total",
        labels=(("type", "corrected"),),
    ),
    Foreign(
        theirs="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        ours="everstep_gpu_row_remaps_total",
        labels=(("type", "uncorrected"),),
    ),
    Foreign(
        theirs="DCGM_FI_DEV_ROW_REMAP_FAILURE", ours="everstep_gpu_row_remap_state", labels=(("state", "failure"),)
    ),
)

_NOT_DEVICES = "lo|ib[0-9].*"
NODE_EXPORTER: tuple[Foreign, ...] = (
    Foreign(
        theirs="node_infiniband_port_data_transmitted_bytes_total",
        ours="everstep_net_bytes_total",
        labels=(("direction", "transmit"),),
    ),
    Foreign(
        theirs="node_infiniband_port_data_transmitted_bytes_total",
        ours="everstep_rdma_bytes_total",
        labels=(("direction", "transmit"),),
    ),
    Foreign(
        theirs="node_network_transmit_bytes_total",
        ours="everstep_net_bytes_total",
        labels=(("direction", "transmit"),),
        unverified=True,
        not_devices=_NOT_DEVICES,
    ),
    Foreign(
        theirs="node_infiniband_port_data_received_bytes_total",
        ours="everstep_net_bytes_total",
        labels=(("direction", "receive"),),
    ),
    Foreign(
        theirs="node_infiniband_port_data_received_bytes_total",
        ours="everstep_rdma_bytes_total",
        labels=(("direction", "receive"),),
    ),
    Foreign(
        theirs="node_network_receive_bytes_total",
        ours="everstep_net_bytes_total",
        labels=(("direction", "receive"),),
        unverified=True,
        not_devices=_NOT_DEVICES,
    ),
    Foreign(
        theirs="node_infiniband_link_downed_total",
        ours="everstep_net_port_errors_total",
        labels=(("kind", "link_downed"),),
    ),
    Foreign(
        theirs="node_infiniband_symbol_error_total", ours="everstep_net_port_errors_total", labels=(("kind", "symbol"),)
    ),
    Foreign(
        theirs="node_infiniband_link_error_recovery_total",
        ours="everstep_net_port_errors_total",
        labels=(("kind", "link_recovery"),),
    ),
    Foreign(
        theirs="node_infiniband_port_errors_received_total",
        ours="everstep_net_port_errors_total",
        labels=(("kind", "receive"),),
    ),
    Foreign(
        theirs="node_infiniband_port_discards_transmitted_total",
        ours="everstep_net_port_errors_total",
        labels=(("kind", "transmit_discard"),),
    ),
    Foreign(
        theirs="node_infiniband_out_of_sequence_packets_received_total",
        ours="everstep_net_port_errors_total",
        labels=(("kind", "out_of_sequence"),),
    ),
    Foreign(
        theirs="node_infiniband_local_ack_timeout_errors_total",
        ours="everstep_net_port_errors_total",
        labels=(("kind", "ack_timeout"),),
    ),
    Foreign(
        theirs="node_infiniband_rate_bytes_per_second", ours="everstep_net_link_rate_bytes_per_second", unverified=True
    ),
    Foreign(theirs="node_memory_MemAvailable_bytes", ours="everstep_host_memory_available_bytes", unverified=True),
    Foreign(theirs="node_memory_MemTotal_bytes", ours="everstep_host_memory_total_bytes", unverified=True),
    Foreign(
        theirs="node_pressure_cpu_waiting_seconds_total",
        ours="everstep_pressure_stalled_seconds_total",
        labels=(
            ("resource", "cpu"),
            ("kind", "some"),
        ),
        unverified=True,
    ),
    Foreign(
        theirs="node_pressure_io_waiting_seconds_total",
        ours="everstep_pressure_stalled_seconds_total",
        labels=(
            ("resource", "io"),
            ("kind", "some"),
        ),
        unverified=True,
    ),
    Foreign(
        theirs="node_pressure_memory_waiting_seconds_total",
        ours="everstep_pressure_stalled_seconds_total",
        labels=(
            ("resource", "memory"),
            ("kind", "some"),
        ),
        unverified=True,
    ),
    Foreign(
        theirs="node_pressure_io_stalled_seconds_total",
        ours="everstep_pressure_stalled_seconds_total",
        labels=(
            ("resource", "io"),
            ("kind", "full"),
        ),
        unverified=True,
    ),
    Foreign(
        theirs="node_pressure_memory_stalled_seconds_total",
        ours="everstep_pressure_stalled_seconds_total",
        labels=(
            ("resource", "memory"),
            ("kind", "full"),
        ),
        unverified=True,
    ),
    Foreign(
        theirs="node_disk_read_bytes_total",
        ours="everstep_storage_transferred_bytes_total",
        labels=(("direction", "read"),),
        renamed=(("device", "target"),),
        unverified=True,
    ),
    Foreign(
        theirs="node_disk_written_bytes_total",
        ours="everstep_storage_transferred_bytes_total",
        labels=(("direction", "write"),),
        renamed=(("device", "target"),),
        unverified=True,
    ),
    Foreign(
        theirs="node_filesystem_avail_bytes",
        divided_by="node_filesystem_size_bytes",
        ours="everstep_filesystem_available_ratio",
        labels=(("kind", "bytes"),),
        renamed=(("mountpoint", "target"),),
        unverified=True,
    ),
    Foreign(
        theirs="node_filesystem_files_free",
        divided_by="node_filesystem_files",
        ours="everstep_filesystem_available_ratio",
        labels=(("kind", "inodes"),),
        renamed=(("mountpoint", "target"),),
        unverified=True,
    ),
    Foreign(theirs="node_vmstat_oom_kill", ours="everstep_host_oom_kills_total", unverified=True),
    Foreign(theirs="node_procs_blocked", ours="everstep_host_blocked_tasks", unverified=True),
    Foreign(theirs="node_timex_offset_seconds", ours="everstep_node_clock_offset_seconds", unverified=True),
)

GPUD: tuple[Foreign, ...] = (
    Foreign(theirs="accelerator_nvidia_power_current_usage_milli_watts", ours="everstep_gpu_power_watts", factor=0.001),
    Foreign(
        theirs="accelerator_nvidia_utilization_gpu_util_percent",
        ours="everstep_gpu_utilization_ratio",
        factor=0.01,
        labels=(("engine", "sm"),),
    ),
    Foreign(theirs="accelerator_nvidia_xid_errors_total", ours="everstep_gpu_xid_errors_total"),
)

_STATES = "only allocated and idle GPUs: no fragmented, isolated or lost ones"
SLURM: tuple[Foreign, ...] = (
    Foreign(
        theirs="slurm_gpus_alloc",
        ours="everstep_cluster_gpus",
        labels=(("state", "allocated"),),
        unverified=True,
        partial=_STATES,
    ),
    Foreign(
        theirs="slurm_gpus_idle",
        ours="everstep_cluster_gpus",
        labels=(("state", "idle"),),
        unverified=True,
        partial=_STATES,
    ),
)

FOREIGN: tuple[Foreign, ...] = (*DCGM, *NODE_EXPORTER, *GPUD, *SLURM)

_VIOLATION = "micro- or nanoseconds by version; calibrate before use"
HINTS: tuple[Hint, ...] = (
    Hint(
        theirs="DCGM_FI_DEV_XID_ERRORS",
        ours="everstep_gpu_xid_errors_total",
        why="a gauge of the last code: repeats and overwritten codes are lost; use it as a hint only",
    ),
    Hint(
        theirs="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        ours="",
        why="millijoules; its rate / 1000 is a cross-check of the power",
    ),
    Hint(
        theirs="DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        ours="everstep_gpu_nvlink_bytes_total",
        why="not bytes; tells only zero from not zero",
    ),
    *(
        Hint(theirs=f"DCGM_FI_DEV_{reason}_VIOLATION", ours="everstep_gpu_throttled_seconds_total", why=_VIOLATION)
        for reason in ("POWER", "THERMAL", "SYNC_BOOST", "BOARD_LIMIT", "LOW_UTIL", "RELIABILITY")
    ),
    Hint(
        theirs="node_disk_read_time_seconds_total",
        ours="everstep_storage_latency_seconds",
        why="gives a mean latency, no tail",
    ),
    Hint(
        theirs="node_disk_write_time_seconds_total",
        ours="everstep_storage_latency_seconds",
        why="gives a mean latency, no tail",
    ),
    Hint(
        theirs="node_infiniband_port_transmit_wait_total",
        ours="",
        why="ticks, not seconds; a congestion hint",
    ),
    Hint(theirs="slurm_job_duration_seconds", ours="", why="run time, not queue wait"),
    Hint(
        theirs="slurm_node_job",
        ours="everstep_train_rank_info",
        why="a join series without rank or GPU",
    ),
    Hint(theirs="slurm_node_info", ours="everstep_train_run_info", why="without mesh and world size"),
    Hint(theirs="slurm_job_info", ours="everstep_train_run_info", why="without mesh and world size"),
    Hint(
        theirs="slurm_node_unavailability_duration_seconds",
        ours="",
        why="an input to estimates of the repair time",
    ),
    Hint(theirs="nccl_bus_bandwidth_gbs", ours="", why="diagnostic; x 1e9 is bytes per second"),
    Hint(
        theirs="nccl_collective_exec_time_microseconds",
        ours="everstep_train_phase_seconds_total",
        why="x 1e-6 is part of the phase collective",
    ),
)
