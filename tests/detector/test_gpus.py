"""Codes are judged by their increase, lost GPUs by their agent's word and the count, and never while the job steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.core.events import Direction, EntityKind
from everstep.core.faults import AUTOMATIC_XIDS, XID_POLICY
from everstep.detector.gpus import GpuReadings, GpuUp, GpuWatch, XidCount, acts_on

LOST = XidCount(node="node-1", gpu="3", xid=79, count=1.0, first=0.0, at=50.0, below_at=49.0)
NOTHING = GpuReadings()


def ups(at: float, *, down: str = "", nodes: tuple[str, ...] = ("node-1",), gpus: int = 2) -> GpuReadings:
    found = [
        GpuUp(node=node, gpu=str(gpu), uuid=f"{node}-{gpu}", up=f"{node}/{gpu}" != down, at=at)
        for node in nodes
        for gpu in range(gpus)
    ]
    return GpuReadings(ups=tuple(found), expected={node: float(gpus) for node in nodes})


def begun() -> GpuWatch:
    watch = GpuWatch(confirm_s=2.0)
    assert watch.judge(NOTHING, stopped=False) == []
    return watch


def test_a_new_code_is_found_at_its_first_increase() -> None:
    (anomaly,) = begun().judge(GpuReadings(xids=(LOST,)), stopped=False)
    assert (anomaly.entity.kind, anomaly.entity.name) == (EntityKind.GPU, "node-1/3")
    assert anomaly.evidence == {"node": "node-1", "xid": 79}
    assert anomaly.direction is Direction.HIGH
    assert (anomaly.onset_earliest, anomaly.onset_latest) == (49.0, 50.0)
    assert anomaly.observed == 1.0


def test_the_same_count_says_nothing_new_and_a_second_event_does() -> None:
    watch = begun()
    watch.judge(GpuReadings(xids=(LOST,)), stopped=False)
    assert watch.judge(GpuReadings(xids=(LOST,)), stopped=False) == []
    (again,) = watch.judge(GpuReadings(xids=(replace(LOST, count=3.0),)), stopped=False)
    assert again.observed == 2.0


def test_what_stands_when_the_watch_begins_is_of_yesterday() -> None:
    watch = GpuWatch()
    assert watch.judge(GpuReadings(xids=(LOST,)), stopped=True) == []
    assert len(watch.judge(GpuReadings(xids=(replace(LOST, count=2.0),)), stopped=False)) == 1


def test_a_series_that_begins_above_zero_is_no_event() -> None:
    assert begun().judge(GpuReadings(xids=(replace(LOST, count=4.0, first=4.0),)), stopped=False) == []


def test_a_fall_is_a_restart_from_zero() -> None:
    watch = begun()
    watch.judge(GpuReadings(xids=(replace(LOST, count=5.0),)), stopped=False)
    (anomaly,) = watch.judge(GpuReadings(xids=(replace(LOST, count=1.0),)), stopped=False)
    assert anomaly.observed == 1.0


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 63, 92, 137, 154, 999])
def test_application_codes_victims_and_unknown_codes_start_nothing(xid: int) -> None:
    assert begun().judge(GpuReadings(xids=(replace(LOST, xid=xid),)), stopped=True) == []


def test_every_code_with_a_fault_and_an_action_is_acted_on() -> None:
    assert {xid for xid in XID_POLICY if acts_on(xid)} == {
        xid for xid in AUTOMATIC_XIDS if XID_POLICY[xid].fault is not None and not XID_POLICY[xid].application
    }


def test_a_silent_gpu_counts_after_it_was_confirmed_and_only_while_the_job_stands() -> None:
    watch = begun()
    assert watch.judge(ups(100.0, down="node-1/0"), stopped=True) == []
    assert watch.judge(ups(101.0, down="node-1/0"), stopped=True) == []
    assert watch.judge(ups(102.0, down="node-1/0"), stopped=False) == []
    (anomaly,) = watch.judge(ups(103.0, down="node-1/0"), stopped=True)
    assert (anomaly.entity.name, anomaly.direction) == ("node-1/0", Direction.LOW)
    assert anomaly.evidence == {"node": "node-1", "uuid": "node-1-0", "present": 1, "expected": 2}
    assert anomaly.onset_latest == 100.0


def test_a_gpu_that_answers_again_starts_anew() -> None:
    watch = begun()
    watch.judge(ups(100.0, down="node-1/0"), stopped=True)
    watch.judge(ups(101.0), stopped=True)
    assert watch.judge(ups(103.0, down="node-1/0"), stopped=True) == []


def test_absent_series_prove_nothing() -> None:
    watch = begun()
    watch.judge(ups(100.0), stopped=True)
    gone = GpuReadings(ups=ups(110.0).ups[1:], expected={"node-1": 2.0})
    assert watch.judge(gone, stopped=True) == []
    assert watch.judge(GpuReadings(expected={"node-1": 2.0}), stopped=True) == []


def test_a_silent_gpu_beyond_the_expected_count_is_nobodys_loss() -> None:
    watch = begun()
    readings = [replace(ups(at, down="node-1/2", gpus=3), expected={"node-1": 2.0}) for at in (100.0, 105.0)]
    assert [watch.judge(one, stopped=True) for one in readings] == [[], []]


def test_nodes_are_judged_each_by_itself() -> None:
    watch = begun()
    both = ("node-0", "node-1")
    watch.judge(ups(100.0, down="node-1/1", nodes=both), stopped=True)
    (anomaly,) = watch.judge(ups(103.0, down="node-1/1", nodes=both), stopped=True)
    assert anomaly.entity.name == "node-1/1"
