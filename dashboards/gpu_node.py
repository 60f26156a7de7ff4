"""Presence, heat, power, memory, errors and host of each node."""

from __future__ import annotations

from everstep.dashboards.board import Board, Kind, Panel, Query, Unit, floors, limits

BOARD = Board(
    uid="everstep-gpu-node",
    title="Everstep / GPU and node",
    description="Presence, heat, power, memory, errors and host of each node.",
    panels=(
        Panel(
            title="GPUs expected and present",
            description="Fewer present than expected is a lost GPU, with or without a code.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum(max by (cluster, node) (everstep_gpus_expected{@node}))", legend="expected", instant=True
                ),
                Query(expr="sum(node:everstep_gpus_present:count{@node})", legend="present", instant=True),
            ),
            kind=Kind.STAT,
            width=6,
            height=5,
        ),
        Panel(
            title="GPUs that answer",
            description="Last read succeeded in time.",
            unit=Unit.SHORT,
            queries=(Query(expr="sum(everstep_gpu_up{@node})", legend="up", instant=True),),
            kind=Kind.STAT,
            width=6,
            height=5,
        ),
        Panel(
            title="Row remaps",
            description="GPUs with a pending or failed row remap.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="""
                    sum by (state) (max by (cluster, node, gpu, state)
                    (everstep_gpu_row_remap_state{@node}))
                    """,
                    legend="{{state}}",
                    instant=True,
                ),
            ),
            kind=Kind.STAT,
            width=6,
            height=5,
            thresholds=limits(orange=1, red=2),
        ),
        Panel(
            title="Driver's advice",
            description="Recovery actions that drivers advise.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="""
                    sum by (action) (max by (cluster, node, gpu, action)
                    (everstep_gpu_recovery_action{action!="none",@node}))
                    """,
                    legend="{{action}}",
                    instant=True,
                ),
            ),
            kind=Kind.STAT,
            width=6,
            height=5,
            thresholds=limits(orange=1, red=2),
        ),
        Panel(
            title="Core temperature",
            description="By GPU.",
            unit=Unit.CELSIUS,
            queries=(Query(expr='everstep_gpu_temperature_celsius{sensor="core",@node}', legend="{{node}} {{gpu}}"),),
            thresholds=limits(orange=80, red=90),
        ),
        Panel(
            title="Memory temperature",
            description="By GPU, where it is supported.",
            unit=Unit.CELSIUS,
            queries=(Query(expr='everstep_gpu_temperature_celsius{sensor="memory",@node}', legend="{{node}} {{gpu}}"),),
            thresholds=limits(orange=90, red=100),
        ),
        Panel(
            title="Power",
            description="By GPU, with the enforced limit.",
            unit=Unit.WATTS,
            queries=(
                Query(expr="everstep_gpu_power_watts{@node}", legend="{{node}} {{gpu}}"),
                Query(expr="max by (node) (everstep_gpu_power_limit_watts{@node})", legend="{{node}} limit"),
            ),
            low=0,
        ),
        Panel(
            title="Utilisation",
            description="1 with low power is a spinning collective.",
            unit=Unit.RATIO,
            queries=(Query(expr='everstep_gpu_utilization_ratio{engine="sm",@node}', legend="{{node}} {{gpu}}"),),
            low=0,
            high=1,
        ),
        Panel(
            title="SM clock",
            description="Low under load: heat or power.",
            unit=Unit.HERTZ,
            queries=(Query(expr="everstep_gpu_sm_clock_hertz{@node}", legend="{{node}} {{gpu}}"),),
            low=0,
        ),
        Panel(
            title="Throttled time",
            description="Share of time with clocks held down, by reason; power at full draw is normal.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expr="""
                    sum by (node, gpu, reason)
                    (rate(everstep_gpu_throttled_seconds_total{@node}[$__rate_interval]))
                    """,
                    legend="{{node}} {{gpu}} {{reason}}",
                ),
            ),
            thresholds=limits(orange=0.1, red=0.5),
            low=0,
        ),
        Panel(
            title="Memory used",
            description="By GPU, with its size.",
            unit=Unit.BYTES,
            queries=(
                Query(expr="everstep_gpu_memory_used_bytes{@node}", legend="{{node}} {{gpu}}"),
                Query(expr="max by (node) (everstep_gpu_memory_total_bytes{@node})", legend="{{node}} size"),
            ),
            low=0,
        ),
        Panel(
            title="ECC errors",
            description="Per hour, by type.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (node, gpu, type) (increase(everstep_gpu_ecc_errors_total{@node}[1h]))",
                    legend="{{node}} {{gpu}} {{type}}",
                ),
            ),
            low=0,
        ),
        Panel(
            title="XID codes",
            description="Events in an hour by GPU and code.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="""
                    sum by (node, gpu, xid) (increase(everstep_gpu_xid_errors_total{@node}[1h])) > 0 or
                    sum by (node) (increase(everstep_gpu_xid_errors_total{@node}[1h]))
                    """,
                    legend="{{node}} {{gpu}} {{xid}}",
                ),
            ),
            thresholds=limits(orange=1, red=2),
            low=0,
        ),
        Panel(
            title="NVLink errors",
            description="Per hour, by kind.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (node, gpu, kind) (increase(everstep_gpu_nvlink_errors_total{@node}[1h]))",
                    legend="{{node}} {{gpu}} {{kind}}",
                ),
            ),
            low=0,
        ),
        Panel(
            title="NVLink traffic",
            description="By node; zero while peers carry load is a fabric manager that is down.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(Query(expr="node:everstep_gpu_nvlink_bytes:rate2m{@node}", legend="{{node}}"),),
            low=0,
        ),
        Panel(
            title="PCIe replays",
            description="Per hour.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (node, gpu) (increase(everstep_gpu_pcie_replays_total{@node}[1h]))",
                    legend="{{node}} {{gpu}}",
                ),
            ),
            thresholds=limits(orange=100, red=1000),
            low=0,
        ),
        Panel(
            title="PCIe lanes",
            description="Lanes in use; judged under load only.",
            unit=Unit.SHORT,
            queries=(
                Query(expr='everstep_gpu_pcie_link_width_lanes{bound="current",@node}', legend="{{node}} {{gpu}}"),
            ),
            low=0,
        ),
        Panel(
            title="Fans",
            description="Share of their maximum speed.",
            unit=Unit.RATIO,
            queries=(Query(expr="everstep_host_fan_speed_ratio{@node}", legend="{{node}} {{fan}}"),),
            thresholds=floors(red=0.1, orange=0.2),
            low=0,
        ),
        Panel(
            title="Memory available",
            description="Share of the host's memory; a steady slope is a leak.",
            unit=Unit.RATIO,
            queries=(Query(expr="node:everstep_host_memory_available:ratio{@node}", legend="{{node}}"),),
            thresholds=floors(red=0.1, orange=0.3),
            low=0,
            high=1,
        ),
        Panel(
            title="Memory available, bytes",
            description="Control group's remainder when that is lower.",
            unit=Unit.BYTES,
            queries=(Query(expr="everstep_host_memory_available_bytes{@node}", legend="{{node}}"),),
            low=0,
        ),
        Panel(
            title="Pressure",
            description="Share of time in which tasks waited for CPU, IO or memory.",
            unit=Unit.RATIO,
            queries=(
                Query(expr='node:everstep_pressure_stalled:rate2m{kind="some",@node}', legend="{{node}} {{resource}}"),
            ),
            thresholds=limits(orange=0.3, red=0.5),
            low=0,
            high=1,
        ),
        Panel(
            title="Pressure by kind",
            description="Some or all tasks waiting.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expr="""
                    sum by (node, resource, kind)
                    (rate(everstep_pressure_stalled_seconds_total{@node}[$__rate_interval]))
                    """,
                    legend="{{node}} {{resource}} {{kind}}",
                ),
            ),
            low=0,
            high=1,
        ),
    ),
)
