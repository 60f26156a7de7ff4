"""What the detector of lost GPUs is shown: presence and error codes of some nodes, from the window store."""

from __future__ import annotations

from collections.abc import Collection

from everstep.detector.gpus import UP, XIDS, GpuReadings, GpuUp, XidCount
from everstep.service.slots import SeriesSlot
from everstep.service.window_store import WindowStore

EXPECTED = "everstep_gpus_expected"


def gpu_readings(windows: WindowStore, nodes: Collection[str]) -> GpuReadings:
    """Of living series only; the caller holds the store's lock."""
    return GpuReadings(
        ups=tuple(_up(slot) for slot in windows.living(UP, nodes)),
        xids=tuple(
            _xid(slot)
            for slot in windows.living(XIDS, nodes)
            if slot.newest > 0 and slot.labels.get("xid", "").isdecimal()
        ),
        expected={slot.node: slot.newest for slot in windows.living(EXPECTED, nodes)},
    )


def _up(slot: SeriesSlot) -> GpuUp:
    labels = slot.labels
    return GpuUp(
        node=slot.node,
        gpu=labels.get("gpu", ""),
        uuid=labels.get("uuid", ""),
        up=slot.newest == 1.0,
        at=slot.newest_at,
    )


def _xid(slot: SeriesSlot) -> XidCount:
    labels = slot.labels
    times, values = slot.ring.arrays()
    below = times[values < slot.newest]
    return XidCount(
        node=slot.node,
        gpu=labels.get("gpu", ""),
        xid=int(labels["xid"]),
        count=slot.newest,
        first=float(values[0]),
        at=slot.newest_at,
        below_at=float(below[-1]) if len(below) else slot.newest_at,
    )
