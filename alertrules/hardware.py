"""Alerts on GPUs: presence, XID codes by policy, memory, links, heat, power. Deterministic signs fire at once."""

from __future__ import annotations

from itertools import groupby

from everstep.alertrules.recording import PEERS_OF
from everstep.alertrules.rule import Alert, Group
from everstep.core.actions import ActionKind
from everstep.core.faults import FAULT_BY_ID, XID_POLICY, XidPolicy

_TEMPERATURE = PEERS_OF["everstep_gpu_temperature_celsius"]
_POWER = PEERS_OF["everstep_gpu_power_watts"]
_CLOCK = PEERS_OF["everstep_gpu_sm_clock_hertz"]
_GPU = "GPU {{ $labels.gpu }} of {{ $labels.node }}"
_BUSY = 'max by (cluster, node, gpu) (everstep_gpu_utilization_ratio{engine="sm"}) > 0.5'


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def xid_alert_name(fault: str) -> str:
    """Name of the alert on the XID codes of a fault.

    >>> xid_alert_name("F01")
    'XidGpuLost'
    """
    return f"Xid{_camel(FAULT_BY_ID[fault].name)}"


def _codes(policies: list[XidPolicy]) -> str:
    return "|".join(str(policy.xid) for policy in policies)


def _increase(codes: str, operator: str = "=~") -> str:
    return f'increase(everstep_gpu_xid_errors_total{{xid{operator}"{codes}"}}[5m]) > 0'


def _xid_alerts() -> tuple[Alert, ...]:
    fatal = sorted((p for p in XID_POLICY.values() if p.fatal and p.fault), key=lambda p: (p.fault or "", p.xid))
    alerts = []
    for fault, group in groupby(fatal, key=lambda policy: policy.fault or ""):
        policies = list(group)
        alerts.append(
            Alert(
                name=xid_alert_name(fault),
                component="hardware",
                fault=fault,
                expr=_increase(_codes(policies)),
                summary=_GPU + " reported XID {{ $labels.xid }}",
                description=f"{FAULT_BY_ID[fault].name.replace('_', ' ')}: {FAULT_BY_ID[fault].remedy}.",
            )
        )
    return tuple(alerts)


_APPLICATION = [p for p in XID_POLICY.values() if p.application and p.actions != (ActionKind.WATCH,)]

XID = (
    *_xid_alerts(),
    Alert(
        name="XidApplicationError",
        component="hardware",
        fault="SOFTWARE",
        severity="warning",
        action=ActionKind.RESTART_APP,
        expr=_increase(_codes(_APPLICATION)),
        summary=_GPU + " reported application XID {{ $labels.xid }}",
        description="An application error, not a fault of the node: restart the application and look at its code.",
    ),
    Alert(
        name="XidUnknown",
        component="hardware",
        fault="UNKNOWN",
        severity="info",
        action=ActionKind.WATCH,
        expr=_increase(_codes(list(XID_POLICY.values())), "!~"),
        summary=_GPU + " reported XID {{ $labels.xid }}, which no policy knows",
        description="Recorded and watched; it matters only together with a stopped job.",
    ),
)

PRESENCE = (
    Alert(
        name="GpuMissing",
        component="hardware",
        fault="F01",
        action=ActionKind.PAGE_HUMAN,  # steps that go on prove it wrong, and only the live path sees them
        expr="node:everstep_gpus_missing:count > 0",
        summary="{{ $value }} GPUs of {{ $labels.node }} are missing",
        description="Fewer GPUs answer than the node should have. No XID need ever come.",
    ),
    Alert(
        name="GpuDown",
        component="hardware",
        fault="F01",
        action=ActionKind.PAGE_HUMAN,
        expr="max by (cluster, node, gpu, uuid) (everstep_gpu_up) == 0",
        summary=_GPU + " does not answer",
        description="The last read of this GPU failed or ran past its deadline.",
    ),
    Alert(
        name="GpuDriverHang",
        component="hardware",
        fault="F02",
        expr="""
        max by (cluster, node) (everstep_agent_scrape_duration_seconds) > 10
        and on (cluster, node)
        max by (cluster, node) (time() - everstep_gpu_last_sample_timestamp_seconds) > 60
        """,
        summary="GPU reads of {{ $labels.node }} take {{ $value | humanizeDuration }} and values are frozen",
        description="Slow collections together with old samples point at the driver, not at the exporter.",
    ),
    Alert(
        name="GpuRecoveryAdvised",
        component="hardware",
        fault="UNKNOWN",
        severity="warning",
        action=ActionKind.RESET_GPU,
        # The series' own label would be overwritten by the alert's label `action`.
        expr="""
        max by (cluster, node, gpu, uuid, advice) (
          label_replace(everstep_gpu_recovery_action{action!="none"}, "advice", "$1", "action", "(.+)")
        ) == 1
        """,
        summary="The driver advises {{ $labels.advice }} for " + _GPU,
        description="The driver's own advice; follow it once the job is off the GPU.",
    ),
)

MEMORY = (
    Alert(
        name="GpuEccUncorrected",
        component="hardware",
        fault="F04",
        expr="""
        increase(everstep_gpu_ecc_errors_total{type="uncorrected"}[5m]) > 0
        unless on (cluster, node, gpu)
        increase(everstep_gpu_xid_errors_total{xid="94"}[5m]) > 0
        """,
        summary=_GPU + " has uncorrected memory errors",
        description="Uncorrected ECC errors without XID 94, so the driver did not contain them.",
    ),
    Alert(
        name="GpuEccCorrectedHigh",
        component="hardware",
        fault="F05",
        expr='increase(everstep_gpu_ecc_errors_total{type="corrected"}[1h]) > 100',
        summary=_GPU + " corrects many memory errors",
        description="{{ $value | humanize }} in an hour: a row is failing and will be remapped.",
    ),
    Alert(
        name="GpuRowRemapPending",
        component="hardware",
        fault="F05",
        expr='max by (cluster, node, gpu, uuid) (everstep_gpu_row_remap_state{state="pending"}) == 1',
        summary=_GPU + " waits for a reset to remap a memory row",
        description="Drain at the next checkpoint and reset the GPU. The job need not stop now.",
    ),
    Alert(
        name="GpuRowRemapFailure",
        component="hardware",
        fault="F06",
        expr='max by (cluster, node, gpu, uuid) (everstep_gpu_row_remap_state{state="failure"}) == 1',
        summary=_GPU + " has no spare memory rows left",
        description="The GPU goes back to the vendor; a clean reboot changes nothing.",
    ),
    Alert(
        name="GpuEccAggregateHigh",
        component="hardware",
        fault="F06",
        severity="warning",
        action=ActionKind.PAGE_HUMAN,
        expr='max by (cluster, node, gpu, uuid) (everstep_gpu_ecc_aggregate_errors_total{type="uncorrected"}) > 4',
        summary=_GPU + " has {{ $value }} uncorrected errors over its life",
        description="Above four uncorrected on-chip memory errors the GPU goes back to the vendor.",
    ),
)

LINKS = (
    Alert(
        name="GpuNvlinkErrors",
        component="hardware",
        fault="F07",
        severity="warning",
        action=ActionKind.WATCH,
        expr="""
        sum by (cluster, node, gpu) (
          increase(everstep_gpu_nvlink_errors_total{kind=~"recovery|crc_data"}[5m])
        ) > 0
        """,
        hold="1m",
        summary="NVLink errors on " + _GPU,
        description="Link recoveries or checksum errors; with a stopped job and XIDs on both peers it is the link.",
    ),
    Alert(
        name="GpuNvlinkSilent",
        component="hardware",
        fault="F08",
        expr="""
        node:everstep_gpu_nvlink_bytes:rate2m == 0
        and on (cluster)
        quantile by (cluster) (0.5, node:everstep_gpu_nvlink_bytes:rate2m) > 1e6
        """,
        hold="2m",
        summary="No NVLink traffic on {{ $labels.node }} while its peers carry load",
        description="All GPU gauges can look healthy while the fabric manager is down.",
    ),
    Alert(
        name="GpuPcieDegraded",
        component="hardware",
        fault="F09",
        expr=f"""
        (
          max by (cluster, node, gpu) (everstep_gpu_pcie_link_width_lanes{{bound="current"}})
          < max by (cluster, node, gpu) (everstep_gpu_pcie_link_width_lanes{{bound="maximum"}})
        )
        and on (cluster, node, gpu) {_BUSY}
        """,
        hold="2m",
        summary=_GPU + " runs on {{ $value }} PCIe lanes",
        description="Fewer lanes than possible while the GPU is busy; idle links are not judged.",
    ),
    Alert(
        name="GpuPcieReplays",
        component="hardware",
        fault="F09",
        action=ActionKind.WATCH,
        expr="increase(everstep_gpu_pcie_replays_total[5m]) > 100",
        hold="5m",
        summary=_GPU + " repeats PCIe packets",
        description="{{ $value | humanize }} replays in 5 minutes; an early sign of a slot or a GPU that will be lost.",
    ),
)

HEAT = (
    Alert(
        name="GpuThermalThrottle",
        component="hardware",
        fault="F10",
        expr="""
        sum by (cluster, node, gpu) (
          rate(everstep_gpu_throttled_seconds_total{reason=~"thermal|hw_thermal|sw_thermal"}[5m])
        ) > 0.1
        """,
        hold="2m",
        summary=_GPU + " is throttled by heat",
        description="{{ $value | humanizePercentage }} of the time with clocks held down.",
    ),
    Alert(
        name="GpuHotterThanPeers",
        component="hardware",
        fault="F10",
        action=ActionKind.WATCH,
        expr=f"""
        {_TEMPERATURE.score_record} > 6
        and {_TEMPERATURE.member_record} > on (cluster) group_left () ({_TEMPERATURE.median_record} + 10)
        """,
        hold="5m",
        summary=_GPU + " is much hotter than its peers",
        description="{{ $value | humanize }} robust deviations above the cluster's median, and over 10 degrees.",
    ),
    Alert(
        name="GpuPowerCapped",
        component="hardware",
        fault="F11",
        expr=f"""
        {_POWER.score_record} < -6
        and on (cluster, node, gpu) {_CLOCK.score_record} < -3
        and on (cluster, node, gpu) {_TEMPERATURE.score_record} < 0
        and on (cluster, node, gpu) {_BUSY}
        """,
        hold="5m",
        summary=_GPU + " draws far less power than its peers",
        description="Low power and clock, cooler than its peers, yet busy: a cap outside the software.",
    ),
    Alert(
        name="FanSlow",
        component="hardware",
        fault="F10",
        action=ActionKind.PAGE_HUMAN,
        expr="min by (cluster, node, fan) (everstep_host_fan_speed_ratio) < 0.1",
        hold="1m",
        summary="Fan {{ $labels.fan }} of {{ $labels.node }} hardly turns",
        description="A failing fan leads the temperature by minutes to hours.",
    ),
)

GROUPS = (
    Group(name="everstep-hardware", rules=(*PRESENCE, *MEMORY, *LINKS, *HEAT)),
    Group(name="everstep-xid", rules=XID),
)
