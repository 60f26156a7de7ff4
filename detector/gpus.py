"""Hard limits of GPUs: error codes that the policy acts on, and GPUs that do not answer any more.

Codes are judged by the increase of their counters, never by their level, so that a code from yesterday starts nothing.
A GPU counts as lost when its agent says so for a while and fewer GPUs answer than the node should have; series that
are merely absent are a matter of monitoring and prove nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from everstep.core.actions import ActionKind
from everstep.core.events import Anomaly, Direction, Entity, EntityKind
from everstep.core.faults import FAULT_BY_ID, XID_POLICY

UP = "everstep_gpu_up"
XIDS = "everstep_gpu_xid_errors_total"
DETECTOR = "gpus"
CONFIRM_S = 2.0  # two readings at 1 Hz: one that came late is no loss


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUp:
    """Whether a GPU answered its agent at `at`, in seconds since the epoch."""

    node: str
    gpu: str
    uuid: str
    up: bool
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class XidCount:
    """How often a GPU has reported an error code, as counted at `at`; codes that never came are left out.

    `first` is the oldest count that is known of the series, `below_at` when the count was last lower than now.
    """

    node: str
    gpu: str
    xid: int
    count: float
    first: float
    at: float
    below_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReadings:
    """The newest of all living series of some nodes; `expected` maps nodes to the GPUs that they should have."""

    ups: tuple[GpuUp, ...] = ()
    xids: tuple[XidCount, ...] = ()
    expected: Mapping[str, float] | None = None


class GpuWatch:
    """Remembers, for one attempt, what counters stood at and since when a GPU has not answered."""

    def __init__(self, *, confirm_s: float = CONFIRM_S) -> None:
        self._confirm_s = confirm_s
        self._counts: dict[tuple[str, str, int], float] = {}
        self._begun = False
        self._down: dict[tuple[str, str], float] = {}

    def judge(self, readings: GpuReadings, *, stopped: bool) -> list[Anomaly]:
        """Codes that have come since the last call; lost GPUs, time and again, while the job has `stopped`.

        A job that steps is not without a GPU: then silence is a fault of monitoring, of which alerts tell people.
        """
        lost = list(self._lost(readings))
        return [*self._increases(readings.xids), *(lost if stopped else ())]

    def _increases(self, counts: Iterable[XidCount]) -> Iterable[Anomaly]:
        first_look, self._begun = not self._begun, True
        for one in counts:
            key = (one.node, one.gpu, one.xid)
            before = self._counts.get(key, one.count if first_look else one.first)
            self._counts[key] = one.count
            grown = one.count - (before if one.count >= before else 0.0)  # a fall is a restart from zero
            if grown > 0 and acts_on(one.xid):
                yield _xid_anomaly(one, grown)

    def _lost(self, readings: GpuReadings) -> Iterable[Anomaly]:
        present: dict[str, int] = {}
        for one in readings.ups:
            present[one.node] = present.get(one.node, 0) + one.up
        for one in readings.ups:
            key = (one.node, one.uuid)
            if one.up:
                self._down.pop(key, None)
                continue
            since = self._down.setdefault(key, one.at)
            expected = (readings.expected or {}).get(one.node, 0.0)
            if one.at - since >= self._confirm_s and present[one.node] < expected:
                yield _lost_anomaly(one, since=since, present=present[one.node], expected=expected)


def acts_on(xid: int) -> bool:
    """Whether the policy knows a fault behind the code that somebody must act on.

    Application errors are not among them: the worker that made them ends and tells it itself.

    >>> acts_on(79), acts_on(63), acts_on(31), acts_on(999)
    (True, False, False, False)
    """
    policy = XID_POLICY.get(xid)
    if policy is None or policy.application or policy.actions[0] is ActionKind.WATCH:
        return False
    return policy.fault in FAULT_BY_ID


def _entity(node: str, gpu: str) -> Entity:
    return Entity(kind=EntityKind.GPU, name=f"{node}/{gpu}")


def _xid_anomaly(one: XidCount, grown: float) -> Anomaly:
    return Anomaly(
        entity=_entity(one.node, one.gpu),
        metric=XIDS,
        onset_earliest=one.below_at,
        onset_latest=one.at,
        score=2.0,
        direction=Direction.HIGH,
        detector=DETECTOR,
        observed=grown,
        expected=0.0,
        evidence={"node": one.node, "xid": one.xid},
    )


def _lost_anomaly(one: GpuUp, *, since: float, present: int, expected: float) -> Anomaly:
    return Anomaly(
        entity=_entity(one.node, one.gpu),
        metric=UP,
        onset_earliest=since,
        onset_latest=since,
        score=1.5,
        direction=Direction.LOW,
        detector=DETECTOR,
        observed=float(present),
        expected=expected,
        evidence={"node": one.node, "uuid": one.uuid, "present": present, "expected": int(expected)},
    )
