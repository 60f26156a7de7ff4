"""Each anomaly of the detectors becomes the fact that the rules speak about."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.core.events import Anomaly, Direction, Entity, EntityKind
from everstep.rca.facts import Fact, fact_of


def fact(
    detector: str, kind: EntityKind = EntityKind.RANK, direction: Direction = Direction.HIGH, **facts: Any
) -> Fact:
    anomaly = Anomaly(
        entity=Entity(kind=kind, name="x"),
        metric="everstep_gpu_power_watts",
        onset_earliest=0.0,
        onset_latest=1.0,
        score=1.0,
        direction=direction,
        detector=detector,
        observed=0.0,
        expected=0.0,
        evidence=facts,
    )
    return fact_of(anomaly, world_size=3)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"state": "killed", "reason": "signal", "exit_code": -9}, Fact.KILLED),
        ({"state": "killed", "reason": "", "exit_code": None}, Fact.KILLED),
        ({"state": "exited", "reason": "", "exit_code": -11}, Fact.KILLED),
        ({"state": "killed", "reason": "signal", "exit_code": -6}, Fact.ABORTED),
        ({"state": "exited", "reason": "exception", "exit_code": 1}, Fact.EXCEPTION),
        ({"state": "exited", "reason": "peer_lost", "exit_code": 78}, Fact.PEER_LOST),
        ({"state": "exited", "reason": "out_of_memory", "exit_code": 73}, Fact.OUT_OF_MEMORY),
        ({"state": "exited", "reason": "disk_full", "exit_code": 74}, Fact.DISK_FULL),
        ({"state": "exited", "reason": "checkpoint", "exit_code": 75}, Fact.CHECKPOINT_EXIT),
        ({"state": "exited", "reason": "fenced", "exit_code": 76}, Fact.FENCED),
        ({"state": "exited", "reason": "nonfinite", "exit_code": 77}, Fact.NONFINITE_EXIT),
        ({"state": "stopped", "reason": "", "exit_code": None}, Fact.STOPPED),
        ({}, Fact.EXCEPTION),
    ],
)
def test_process(facts: dict[str, Any], expected: Fact) -> None:
    assert fact("process", **facts) is expected


def test_other_detectors() -> None:
    assert fact("liveness", probe="refused") is Fact.NODE_REFUSED
    assert fact("liveness", probe="timeout") is Fact.NODE_SILENT
    assert fact("liveness", probe="http-500") is Fact.NODE_ANSWERS
    assert fact("progress", phase="startup") is Fact.NO_FIRST_STEP
    assert fact("progress", phase="steady") is Fact.STALLED
    assert fact("nonfinite", input_nonfinite=True, ranks=[1]) is Fact.NONFINITE_INPUT
    assert fact("nonfinite", input_nonfinite=False, ranks=[1]) is Fact.NONFINITE_ALONE
    assert fact("nonfinite", input_nonfinite=False, ranks=[0, 1]) is Fact.NONFINITE_SHARED
    assert fact("peers") is Fact.SLOW
    assert fact("checkpoint") is Fact.CHECKPOINT_DAMAGED


def test_silence_of_infrastructure_is_telemetry_and_of_training_is_not() -> None:
    assert fact("missing", EntityKind.NODE) is Fact.TELEMETRY
    assert fact("baseline", EntityKind.GPU, Direction.ABSENT) is Fact.TELEMETRY
    assert fact("baseline", EntityKind.GPU, Direction.HIGH) is Fact.SYMPTOM
    assert fact("baseline", EntityKind.RANK, Direction.STOP) is Fact.SYMPTOM
    assert fact("baseline", EntityKind.UNKNOWN, Direction.STOP) is Fact.SYMPTOM


def test_a_silent_gpu_is_lost_and_a_code_speaks_of_its_policy() -> None:
    assert fact("gpus", EntityKind.GPU, Direction.LOW, present=7, expected=8) is Fact.GPU_LOST
    assert fact("gpus", EntityKind.GPU, xid=79) is Fact.SYMPTOM
