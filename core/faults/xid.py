"""One policy for every XID code that Everstep knows: fatality, action and fault from the same row.

Codes absent here are unknown: record and watch, and act only together with a stopped job. Act on increases of the
counter, once per (gpu, code, time), never on the level of a last-code gauge.
"""

from __future__ import annotations

from everstep.core.actions import ActionKind
from everstep.core.faults.spec import XidPolicy

_WATCH = (ActionKind.WATCH,)
_RESET = (ActionKind.RESET_GPU,)
_RESET_OR_ISOLATE = (ActionKind.RESET_GPU, ActionKind.ISOLATE_NODE)
_APP = (ActionKind.RESTART_APP,)
_NVLINK5 = "follow the NVLink 5 workflow"


def _application(xid: int, meaning: str) -> XidPolicy:
    return XidPolicy(
        xid=xid,
        meaning=meaning,
        policy="application error: look at the code",
        actions=_APP,
        application=True,
        unverified=True,
    )


def _victim(xid: int, meaning: str) -> XidPolicy:
    return XidPolicy(
        xid=xid,
        meaning=meaning,
        policy="follow the other XID, otherwise ignore",
        actions=_WATCH,
        application=True,
        unverified=True,
    )


def _reset(xid: int, meaning: str, fault: str, *, unverified: bool = True, policy: str = "reset") -> XidPolicy:
    return XidPolicy(xid=xid, meaning=meaning, policy=policy, actions=_RESET, fault=fault, unverified=unverified)


_POLICIES: tuple[XidPolicy, ...] = (
    _application(13, "graphics engine exception"),
    _application(31, "GPU memory page fault"),
    _victim(43, "process stopped"),
    _victim(45, "preemptive cleanup"),
    XidPolicy(
        xid=48,
        meaning="double-bit ECC error",
        policy="ECC workflow: look for 63, 64, 94 and 95; isolate on repeat",
        actions=_RESET_OR_ISOLATE,
        fault="F04",
    ),
    _reset(62, "internal controller halt", "F02"),
    XidPolicy(
        xid=63,
        meaning="row remap recorded",
        policy="ignore now, drain at the next checkpoint when pending",
        actions=_WATCH,
        fault="F05",
    ),
    XidPolicy(
        xid=64,
        meaning="row remap failed",
        policy="isolate and return the GPU to the vendor",
        actions=(ActionKind.ISOLATE_NODE,),
        fault="F06",
    ),
    XidPolicy(
        xid=74, meaning="NVLink error", policy="follow the NVLink workflow", actions=_RESET_OR_ISOLATE, fault="F07"
    ),
    XidPolicy(
        xid=79,
        meaning="GPU fell off the bus",
        policy="isolate and restart the bare metal",
        actions=(ActionKind.ISOLATE_NODE, ActionKind.ROLLBACK_CHECKPOINT),
        fault="F01",
    ),
    XidPolicy(xid=92, meaning="high single-bit ECC rate", policy="ignore, watch", actions=_WATCH, fault="F05"),
    XidPolicy(
        xid=94,
        meaning="contained ECC error",
        policy="restart the application on the same node; never counts towards repeat offenders",
        actions=_APP,
        fault="F03",
    ),
    _reset(95, "uncontained ECC error", "F04", unverified=False),
    _reset(109, "context switch timeout", "F02"),
    _reset(119, "GSP timeout", "F02", unverified=False, policy="reset, upgrade the driver, no RMA"),
    _reset(120, "GSP error", "F02", unverified=False, policy="reset, upgrade the driver, no RMA"),
    XidPolicy(xid=137, meaning="NVLink privilege error", policy="ignore", actions=_WATCH, unverified=True),
    _reset(140, "unrecovered ECC error", "F04"),
    _reset(143, "GPU initialisation error", "F02"),
    *(
        XidPolicy(xid=xid, meaning="NVLink 5 error", policy=_NVLINK5, actions=_RESET_OR_ISOLATE, fault="F07")
        for xid in range(144, 151)
    ),
    XidPolicy(
        xid=154,
        meaning="recovery action changed",
        policy="informational: read everstep_gpu_recovery_action",
        actions=_WATCH,
    ),
    _reset(155, "link event", "F07"),
    _reset(156, "resource event", "F04"),
    XidPolicy(xid=157, meaning="resource retirement", policy="watch", actions=_WATCH, fault="F05", unverified=True),
    _reset(158, "fatal timeout", "F02"),
)

XID_POLICY: dict[int, XidPolicy] = {policy.xid: policy for policy in _POLICIES}

AUTOMATIC_XIDS: tuple[int, ...] = tuple(xid for xid, policy in XID_POLICY.items() if policy.actions != _WATCH)
"""Codes that lead to an action; the agent starts their counters at 0, so that `increase()` sees the first event."""
