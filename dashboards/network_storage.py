"""Rails, ports, latency between nodes, file systems."""

from __future__ import annotations

from everstep.dashboards.board import Board, Kind, Panel, Query, Unit, floors, limits

BOARD = Board(
    uid="everstep-network-storage",
    title="Everstep / Network and storage",
    description="Rails, ports, latency between nodes, file systems.",
    panels=(
        Panel(
            title="Traffic by direction",
            description="All ports of a node.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(Query(expr="node:everstep_net_bytes:rate2m{@node}", legend="{{node}} {{direction}}"),),
            low=0,
        ),
        Panel(
            title="Traffic by port",
            description="A rail at zero while the others carry more is a port that is down.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(Query(expr="port:everstep_net_bytes:rate2m{@node}", legend="{{node}} {{device}}/{{port}}"),),
            low=0,
        ),
        Panel(
            title="RDMA traffic",
            description="By device.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(
                Query(
                    expr="sum by (node, device) (rate(everstep_rdma_bytes_total{@node}[$__rate_interval]))",
                    legend="{{node}} {{device}}",
                ),
            ),
            low=0,
        ),
        Panel(
            title="Raw traffic",
            description="Counter behind the rates above, by device.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(
                Query(
                    expr="sum by (node, device) (rate(everstep_net_bytes_total{@node}[$__rate_interval]))",
                    legend="{{node}} {{device}}",
                ),
            ),
            low=0,
        ),
        Panel(
            title="Latency between nodes, p99",
            description="Most nodes high: the fabric. One node high: its link.",
            unit=Unit.SECONDS,
            queries=(Query(expr="node:everstep_net_latency_seconds:p99{@node}", legend="{{node}}"),),
            thresholds=limits(orange=0.001, red=0.01),
            low=0,
        ),
        Panel(
            title="Latency by peer rack",
            description="Average; one pair of racks high is one spine link.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="""
                    sum by (node, peer_rack)
                    (rate(everstep_net_latency_seconds_sum{@node}[$__rate_interval])) / (sum by (node,
                    peer_rack) (rate(everstep_net_latency_seconds_count{@node}[$__rate_interval])) > 0)
                    """,
                    legend="{{node}} to {{peer_rack}}",
                ),
            ),
            low=0,
        ),
        Panel(
            title="Port errors",
            description="Per hour, by kind.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (node, device, kind) (increase(everstep_net_port_errors_total{@node}[1h]))",
                    legend="{{node}} {{device}} {{kind}}",
                ),
            ),
            width=12,
            low=0,
        ),
        Panel(
            title="Link losses",
            description="In five minutes; two on one port are a flap, three nodes of a rack are a switch.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="""
                    sum by (node, device)
                    (increase(everstep_net_port_errors_total{kind="link_downed",@node}[5m]))
                    """,
                    legend="{{node}} {{device}}",
                ),
            ),
            width=12,
            thresholds=limits(orange=1, red=2),
            low=0,
        ),
        Panel(
            title="Storage throughput",
            description="Read and written by target.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(
                Query(
                    expr="target:everstep_storage_transferred_bytes:rate2m{@cluster}", legend="{{target}} {{direction}}"
                ),
            ),
            low=0,
        ),
        Panel(
            title="Storage throughput by node",
            description="A node that reads nothing while others do.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(
                Query(
                    expr="""
                    sum by (node, direction)
                    (rate(everstep_storage_transferred_bytes_total{@node}[$__rate_interval]))
                    """,
                    legend="{{node}} {{direction}}",
                ),
            ),
            low=0,
        ),
        Panel(
            title="Storage latency, p99",
            description="By target and operation, as each node sees it.",
            unit=Unit.SECONDS,
            queries=(
                Query(expr="target:everstep_storage_latency_seconds:p99{@node}", legend="{{node}} {{target}} {{op}}"),
            ),
            thresholds=limits(orange=1, red=5),
            low=0,
        ),
        Panel(
            title="Storage latency distribution",
            description="All probes.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="""
                    sum by (le)
                    (increase(everstep_storage_latency_seconds_bucket{@node}[$__rate_interval]))
                    """,
                    legend="{{le}}",
                ),
            ),
            kind=Kind.HEATMAP,
        ),
        Panel(
            title="Space and inodes",
            description="Free share; either at zero fails every save.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expr="min by (node, target, kind) (everstep_filesystem_available_ratio{@node})",
                    legend="{{node}} {{target}} {{kind}}",
                ),
            ),
            thresholds=floors(red=0.01, orange=0.1),
            low=0,
            high=1,
        ),
        Panel(
            title="Blocked tasks",
            description="Tasks that wait in the kernel.",
            unit=Unit.SHORT,
            queries=(Query(expr="everstep_host_blocked_tasks{@node}", legend="{{node}}"),),
            thresholds=limits(orange=5, red=10),
            low=0,
        ),
    ),
)
