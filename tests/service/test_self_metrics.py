from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.core.actions import Action, ActionKind, Outcome, PlannedAction
from everstep.core.events import Entity, EntityKind, Incident, IncidentState, RootCause
from everstep.service.self_metrics import SelfMetrics, counter_family, gauge_family

RANK = Entity(kind=EntityKind.RANK, name="demo/1")
INCIDENT = Incident(
    id="i",
    job="demo",
    attempt=1,
    opened=10.0,
    onset=9.5,
    diagnosed=10.5,
    causes=(RootCause(entity=RANK, fault="F25", confidence=1.0),),
    actions=(
        PlannedAction(action=Action(kind=ActionKind.RESTART_PROCESS, target="rank demo/1"), outcome=Outcome.SUCCEEDED),
    ),
)


def test_time_to_detect_runs_from_the_onset() -> None:
    metrics = SelfMetrics()
    metrics.diagnosed(INCIDENT)
    labels = {"fault": "F25", "class": "training"}
    value = metrics.registry.get_sample_value
    assert value("everstep_fault_detection_delay_seconds_sum", labels) == 1.0


@pytest.mark.parametrize(
    ("state", "recovered", "outcome", "restarts"),
    [
        (IncidentState.RESOLVED, 12.5, "success", 1.0),
        (IncidentState.ESCALATED, None, "escalated", None),
        (IncidentState.DISMISSED, None, "failed", None),
    ],
)
def test_time_to_recover_runs_from_the_verdict(
    state: IncidentState, recovered: float | None, outcome: str, restarts: float | None
) -> None:
    metrics = SelfMetrics()
    metrics.handled(replace(INCIDENT, state=state, recovered=recovered, closed=12.5))
    value = metrics.registry.get_sample_value
    labels = {"action": "restart_process", "outcome": outcome}
    assert value("everstep_recovery_duration_seconds_sum", labels) == 2.0
    assert value("everstep_train_restarts_total", {"train_job": "demo", "cause": "F25"}) == restarts


def test_two_instances_do_not_meet() -> None:
    SelfMetrics().error("store")
    assert SelfMetrics().errors("store") == 0.0


def test_families_come_from_the_metric_table() -> None:
    family = counter_family("everstep_detector_samples_rejected_total", {("m", "range"): 3.0})
    assert [(sample.name, sample.labels, sample.value) for sample in family.samples] == [
        ("everstep_detector_samples_rejected_total", {"metric": "m", "reason": "range"}, 3.0)
    ]
    gauge = gauge_family("everstep_agent_up", {("node-0",): 1.0})
    assert gauge.samples[0].labels == {"node": "node-0"}


def test_what_alerts_and_panels_wait_for_begins_at_zero() -> None:
    value = SelfMetrics().registry.get_sample_value
    assert value("everstep_service_errors_total", {"where": "store"}) == 0.0
    assert value("everstep_detector_suppressed_total", {"reason": "storm"}) == 0.0
    assert value("everstep_alerts_total", {"outcome": "echo"}) == 0.0
    escalated = {"action": "isolate_node", "outcome": "escalated"}
    assert value("everstep_recovery_duration_seconds_count", escalated) == 0.0


def test_every_place_that_counts_an_error_is_in_the_table() -> None:
    import re
    from pathlib import Path

    from everstep import service
    from everstep.core.metrics.detection import SURVIVED_AT

    source = "".join(path.read_text() for path in Path(str(service.__file__)).parent.glob("*.py"))
    assert set(re.findall(r"\berror\(\"([a-z_]+)\"\)", source)) == set(SURVIVED_AT)
