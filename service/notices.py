"""Alertmanager's webhook body (version 4) as values, and the memory that makes each delivery count once."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everstep.core.errors import WireError

MAX_ALERTS = 2000
MAX_SEEN = 20_000
_MEND = "send Alertmanager's webhook, version 4"

DeliveryKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One alert of one delivery; `key` is the same when the delivery is repeated."""

    key: DeliveryKey
    firing: bool
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: float
    fingerprint: str

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    def label(self, name: str) -> str:
        """Empty where the alert does not carry it."""
        return self.labels.get(name, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """`truncated` is how many alerts Alertmanager left out of this body."""

    notices: tuple[Notice, ...]
    truncated: int = 0


def parse(body: bytes) -> Delivery:
    """Raises `WireError` on anything else than the webhook's form, or more than `MAX_ALERTS` alerts."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError("the body is not JSON", mend=_MEND) from error
    alerts = data.get("alerts") if isinstance(data, dict) else None
    if not isinstance(alerts, list):
        raise WireError("the body holds no list of alerts", mend=_MEND)
    if len(alerts) > MAX_ALERTS:
        raise WireError(f"the body holds {len(alerts)} alerts, {MAX_ALERTS} are allowed", mend="set max_alerts")
    truncated = data.get("truncatedAlerts", 0)
    return Delivery(
        notices=tuple(_notice(str(data.get("groupKey", "")), alert) for alert in alerts),
        truncated=truncated if isinstance(truncated, int) else 0,
    )


def _notice(group: str, alert: Any) -> Notice:
    if not isinstance(alert, dict) or alert.get("status") not in {"firing", "resolved"}:
        raise WireError("an alert is neither firing nor resolved", mend=_MEND)
    started = str(alert.get("startsAt", ""))
    fingerprint, status = str(alert.get("fingerprint", "")), str(alert["status"])
    try:
        starts_at = datetime.fromisoformat(started).timestamp()
    except (ValueError, OverflowError) as error:
        raise WireError(f"startsAt {started[:40]!r} is no time", mend=_MEND) from error
    return Notice(
        key=(group, fingerprint, started, status),
        firing=status == "firing",
        labels=_words(alert.get("labels")),
        annotations=_words(alert.get("annotations")),
        starts_at=starts_at,
        fingerprint=fingerprint,
    )


def _words(found: Any) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise WireError("labels and annotations are mappings", mend=_MEND)
    return {str(name): str(value) for name, value in found.items()}


class Seen:
    """The newest `most` delivery keys, on one thread or under the caller's lock."""

    def __init__(self, most: int = MAX_SEEN) -> None:
        self._most = most
        self._keys: OrderedDict[DeliveryKey, None] = OrderedDict()

    def first(self, key: DeliveryKey) -> bool:
        """Whether this key is new; from now on it is not."""
        if key in self._keys:
            self._keys.move_to_end(key)
            return False
        self._keys[key] = None
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)
        return True
