"""The fault table agrees with the metric table, with the XID policy and with the published rates."""

import pytest

from everstep.core.actions import ActionKind
from everstep.core.faults import (
    AUTOMATIC_XIDS,
    FAULT_BY_ID,
    FAULT_BY_NAME,
    FAULT_CLASSES,
    FAULTS,
    SOFTWARE,
    UNKNOWN,
    VERDICTS,
    XID_POLICY,
    Fault,
)
from everstep.core.metrics import METRIC_BY_NAME, METRICS

each_verdict = pytest.mark.parametrize("fault", VERDICTS, ids=lambda fault: fault.id)


def test_the_31_kinds_are_in_order() -> None:
    assert [fault.id for fault in FAULTS] == [f"F{number:02d}" for number in range(1, 32)]
    assert len(FAULT_BY_NAME) == len(FAULT_BY_ID) == 33


def test_two_legal_verdicts_stand_outside_the_31() -> None:
    assert (SOFTWARE.id, SOFTWARE.name) == ("SOFTWARE", "process_exit")
    assert (UNKNOWN.id, UNKNOWN.name) == ("UNKNOWN", "unknown")
    assert not SOFTWARE.evicts
    assert not UNKNOWN.evicts


@each_verdict
def test_symptoms_are_in_the_metric_table(fault: Fault) -> None:
    assert fault.symptoms
    for symptom in fault.symptoms:
        metric = METRIC_BY_NAME[symptom.metric]
        for name, value in symptom.labels:
            label = next(label for label in metric.labels if label.name == name)
            assert not label.values or value in label.values


@each_verdict
def test_row_is_whole(fault: Fault) -> None:
    assert fault.root_kind
    assert fault.propagation
    assert fault.default_actions
    assert fault.remedy
    assert fault.forbidden
    assert fault.severity in {1, 2, 3}
    assert fault.prior_per_gpu_hour > 0


@each_verdict
def test_software_and_monitoring_faults_evict_nobody(fault: Fault) -> None:
    if fault.software or fault.monitoring:
        assert not fault.evicts


def test_monitoring_faults_change_nothing_on_nodes_or_jobs() -> None:
    allowed = {ActionKind.WATCH, ActionKind.FIX_SERVICE}
    assert [fault.id for fault in FAULTS if fault.monitoring] == ["F31"]
    assert set(FAULT_BY_ID["F31"].default_actions) <= allowed


def test_every_fault_is_revealed_by_some_metric() -> None:
    revealed = {fault for metric in METRICS for fault in metric.reveals}
    assert {fault.id for fault in FAULTS} <= revealed


def test_no_code_is_both_fatal_and_without_action() -> None:
    for policy in XID_POLICY.values():
        assert policy.actions
        assert policy.fatal == (not policy.application and policy.actions != (ActionKind.WATCH,))
        assert policy.fault is None or policy.fault in FAULT_BY_ID


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
def test_application_codes_never_isolate(xid: int) -> None:
    policy = XID_POLICY[xid]
    assert policy.application
    assert not policy.fatal
    assert not {ActionKind.ISOLATE_NODE, ActionKind.RESET_GPU} & set(policy.actions)


@pytest.mark.parametrize(
    ("xid", "fault"),
    [(48, "F04"), (62, "F02"), (63, "F05"), (64, "F06"), (74, "F07"), (79, "F01"), (92, "F05"), (94, "F03"),
     (95, "F04"), (119, "F02"), (120, "F02"), (140, "F04"), (147, "F07"), (155, "F07"), (156, "F04"), (158, "F02"),
     (137, None), (154, None)],
)  # fmt: skip
def test_xid_leads_to(xid: int, fault: str | None) -> None:
    assert XID_POLICY[xid].fault == fault


def test_the_driver_faults_are_never_returned_to_the_vendor() -> None:
    assert "no RMA" in XID_POLICY[119].policy
    assert "return the GPU to the vendor" in FAULT_BY_ID["F02"].forbidden


def test_codes_with_an_action_start_at_zero() -> None:
    assert {13, 48, 64, 79, 94, 95, 119, 144, 150} <= set(AUTOMATIC_XIDS)
    assert not {43, 45, 63, 92, 137, 154, 157} & set(AUTOMATIC_XIDS)


def test_interrupting_rates_sum_to_the_published_total() -> None:
    total = sum(kind.per_gpu_hour for kind in FAULT_CLASSES if kind.interrupting)
    assert total == pytest.approx(2.15e-5, rel=0.01)


def test_a_class_is_split_evenly() -> None:
    assert FAULT_BY_ID["F01"].prior_per_gpu_hour == pytest.approx(6.9e-6 / 3)
    assert FAULT_BY_ID["F12"].prior_per_gpu_hour == pytest.approx(2.5e-6 / 2 + 8e-6 / 4)
    assert FAULT_BY_ID["F17"].prior_per_gpu_hour == pytest.approx(2.2e-6 / 2 + 3e-7)
