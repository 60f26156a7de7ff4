from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.core.errors import WireError
from everstep.service.notices import MAX_ALERTS, Seen, parse

ALERT = {
    "status": "firing",
    "labels": {"alertname": "GpuMissing", "node": "node-1", "fault": "F01"},
    "annotations": {"summary": "a GPU is gone"},
    "startsAt": "2026-12-01T05:36:38.123456789Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "fingerprint": "abc",
}


def body(*alerts: Any, **more: Any) -> bytes:
    return json.dumps({"version": "4", "groupKey": "{}:{}", "alerts": alerts, **more}).encode()


def test_a_delivery_is_read() -> None:
    delivery = parse(body(ALERT, truncatedAlerts=3))
    assert delivery.truncated == 3
    (notice,) = delivery.notices
    assert notice.firing
    assert notice.name == "GpuMissing"
    assert notice.label("train_job") == ""
    assert notice.starts_at == pytest.approx(1796103398.123456)
    assert notice.key == ("{}:{}", "abc", "2026-12-01T05:36:38.123456789Z", "firing")


def test_an_alert_without_labels_is_read() -> None:
    (notice,) = parse(body({"status": "resolved", "startsAt": ALERT["startsAt"]})).notices
    assert notice.labels == {}
    assert notice.name == ""


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]",
        b"{}",
        b'{"alerts": 3}',
        body("x"),
        body({**ALERT, "status": "odd"}),
        body({**ALERT, "startsAt": "soon"}),
        body({**ALERT, "labels": [1]}),
        body(*[ALERT] * (MAX_ALERTS + 1)),
    ],
)
def test_anything_else_is_refused_with_a_mend(bad: bytes) -> None:
    with pytest.raises(WireError) as caught:
        parse(bad)
    assert caught.value.mend


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        delivery = parse(raw)
    except WireError:
        return
    assert len(delivery.notices) <= MAX_ALERTS


def test_a_key_counts_once_and_the_memory_is_bounded() -> None:
    seen = Seen(most=2)
    keys = [("g", str(number), "t", "firing") for number in range(3)]
    assert [seen.first(keys[0]), seen.first(keys[0]), seen.first(keys[1])] == [True, False, True]
    assert seen.first(keys[2])
    assert seen.first(keys[0])
