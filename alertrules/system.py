"""Alerts on network, storage, hosts and the scheduler."""

from __future__ import annotations

from everstep.alertrules.rule import Alert, Group
from everstep.core.actions import ActionKind

_LINK_DOWN = 'increase(everstep_net_port_errors_total{kind="link_downed"}[5m])'
_PORT = "{{ $labels.device }} port {{ $labels.port }} of {{ $labels.node }}"

NETWORK = (
    Alert(
        name="NicLinkDown",
        component="system",
        fault="F13",
        severity="warning",
        action=ActionKind.WATCH,
        expr=f"sum by (cluster, rack, node, device, port) ({_LINK_DOWN}) > 0",
        summary="Link of " + _PORT + " went down",
        description="One loss of link is watched, not acted upon; twice in 5 minutes is a flap.",
    ),
    Alert(
        name="NicLinkFlapping",
        component="system",
        fault="F14",
        action=ActionKind.ISOLATE_NODE,
        expr=f"sum by (cluster, rack, node, device, port) ({_LINK_DOWN}) >= 2",
        keep="5m",
        summary="Link of " + _PORT + " flaps",
        description="Down {{ $value | humanize }} times in 5 minutes. Isolate one end, never both.",
    ),
    Alert(
        name="SwitchFailure",
        component="system",
        fault="F16",
        expr=f"count by (cluster, rack) (sum by (cluster, rack, node) ({_LINK_DOWN}) > 0) >= 3",
        summary="{{ $value }} nodes of rack {{ $labels.rack }} lost links at once",
        description="One switch, not several nodes: move the job off the rack and page the network team.",
    ),
    Alert(
        name="RailSilent",
        component="system",
        fault="F13",
        expr="""
        port:everstep_net_bytes:rate2m{port!=""} == 0
        and on (cluster, node)
        quantile by (cluster, node) (0.5, port:everstep_net_bytes:rate2m{port!=""}) > 1e6
        """,
        hold="2m",
        summary="No traffic on " + _PORT,
        description="The other rails of the node carry load; a failed-over rail does not come back by itself.",
    ),
    Alert(
        name="FabricLatencyHigh",
        component="system",
        fault="F15",
        expr="quantile by (cluster) (0.5, node:everstep_net_latency_seconds:p99) > 0.01",
        hold="2m",
        summary="Tail latency between most nodes of {{ $labels.cluster }} is {{ $value | humanizeDuration }}",
        description="Most nodes see it, so it is the fabric: page the network team, isolate nobody.",
    ),
    Alert(
        name="FabricDiscards",
        component="system",
        fault="F15",
        expr='sum by (cluster, rack) (rate(everstep_net_port_errors_total{kind="transmit_discard"}[5m])) > 10',
        hold="2m",
        summary="Ports in rack {{ $labels.rack }} discard {{ $value | humanize }} packets a second",
        description="Flow control is missing or overrun.",
    ),
)

HOSTS = (
    Alert(
        name="NodeDown",
        component="system",
        fault="F18",
        expr="""
        max by (cluster, node) (everstep_agent_up) == 0
        and on (cluster, node)
        max by (cluster, node) (max_over_time(up{job="everstep-agent"}[30s])) == 0
        """,
        summary="{{ $labels.node }} is down",
        description="Neither the service nor Prometheus can reach its agent.",
    ),
    Alert(
        name="HostMemoryLeak",
        component="system",
        fault="F17",
        severity="warning",
        expr="""
        predict_linear(everstep_host_memory_available_bytes[30m], 3600) < 0
        and predict_linear(everstep_host_memory_available_bytes[5m], 3600) < 0
        and on (cluster, node) node:everstep_host_memory_available:ratio < 0.3
        """,
        hold="15m",  # a prefetch buffer that fills and then stays flat must not look like a leak
        summary="{{ $labels.node }} runs out of memory within an hour",
        description="Less than 30 % is left and it falls steadily. A plateau does not fire this.",
    ),
    Alert(
        name="HostOomKill",
        component="system",
        fault="F17",
        expr="increase(everstep_host_oom_kills_total[5m]) > 0",
        summary="The kernel killed a process on {{ $labels.node }} for want of memory",
        description="Find the process in the kernel log; if all nodes share the slope it is the job's code.",
    ),
    Alert(
        name="ClockSkew",
        component="system",
        fault="F31",
        expr="abs(max by (cluster, node) (everstep_node_clock_offset_seconds)) > 0.5",
        hold="5m",
        summary="Clock of {{ $labels.node }} is off by {{ $value | humanizeDuration }}",
        description="Onset times of this node cannot be compared with others.",
    ),
)

STORAGE = (
    Alert(
        name="StorageStalled",
        component="system",
        fault="F21",
        severity="warning",
        expr='target:everstep_storage_latency_seconds:p99{op=~"write|fsync"} > 5',
        hold="2m",
        summary="{{ $labels.op }} on {{ $labels.target }} is very slow from {{ $labels.node }}",
        description="{{ $value | humanizeDuration }}: stage saves to the local disk; isolating nodes does not help.",
    ),
    Alert(
        name="HostTasksBlocked",
        component="system",
        fault="F21",
        severity="warning",
        action=ActionKind.WATCH,
        expr="max by (cluster, node) (everstep_host_blocked_tasks) > 10",
        hold="5m",
        summary="{{ $value }} tasks of {{ $labels.node }} are blocked in the kernel",
        description="They wait for a device or a file system that does not answer.",
    ),
    Alert(
        name="FilesystemFilling",
        component="system",
        fault="F24",
        severity="warning",
        expr="min by (cluster, node, target, kind) (everstep_filesystem_available_ratio) < 0.1",
        hold="5m",
        summary="{{ $labels.target }} of {{ $labels.node }} has few {{ $labels.kind }} left",
        description="{{ $value | humanizePercentage }}: clean up by policy before saves fail.",
    ),
    Alert(
        name="FilesystemFull",
        component="system",
        fault="F24",
        expr="min by (cluster, node, target, kind) (everstep_filesystem_available_ratio) < 0.01",
        summary="{{ $labels.target }} on {{ $labels.node }} is out of {{ $labels.kind }}",
        description="Saves fail and restarts are useless until files are removed.",
    ),
)

SCHEDULER = (
    Alert(
        name="ClusterCapacityLost",
        component="system",
        fault="F16",
        severity="warning",
        action=ActionKind.PAGE_HUMAN,
        expr="""
        sum by (cluster) (max by (cluster, state) (everstep_cluster_gpus{state=~"lost|isolated"}))
        / sum by (cluster) (max by (cluster, state) (everstep_cluster_gpus)) > 0.1
        """,
        hold="5m",
        summary="{{ $value | humanizePercentage }} of the GPUs of {{ $labels.cluster }} are lost or isolated",
        description="Automatic isolation stops at its cap; decide what is to be repaired first.",
    ),
    Alert(
        name="QueueWaitLong",
        component="system",
        expr="queue:everstep_queue_wait_seconds:p95 > 3600",
        hold="30m",
        severity="info",
        action=ActionKind.WATCH,
        summary="Jobs of queue {{ $labels.queue }} wait {{ $value | humanizeDuration }}",
        description="Starvation or fragmentation; compare idle and fragmented GPUs.",
    ),
)

GROUPS = (Group(name="everstep-system", rules=(*NETWORK, *HOSTS, *STORAGE, *SCHEDULER)),)
