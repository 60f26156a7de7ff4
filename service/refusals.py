"""Samples that the gate refused: counted by metric and reason, and told with the node that sent them."""

from __future__ import annotations

from collections import Counter

import structlog

TELL_AGAIN_S = 600.0
MAX_TOLD = 10_000

_MEND = {
    "clock": "compare the clock of the node with that of the service; repair its time synchronisation",
    "range": "one is noise; when it goes on, suspect the exporter or the driver of that node",
    "stale": "older than what is known: a second sender, or a clock that went back",
    "duplicate": "two senders of one series, or a push that was sent again",
    "reset": "a counter fell too far to have begun anew; look at the exporter of that node",
}


class Refusals:
    """`counts` may be added to directly where no single node is to blame."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._told: dict[tuple[str, str], float] = {}
        self._log = structlog.get_logger()

    def add(self, metric: str, reason: str, *, node: str, at: float, value: float, arrived: float) -> None:
        """Count one; a node and reason are logged when they begin, and every ten minutes while they last."""
        self.counts[metric, reason] += 1
        key = (node, reason)
        before = self._told.get(key)
        if (before is not None and arrived - before < TELL_AGAIN_S) or (before is None and len(self._told) >= MAX_TOLD):
            return
        self._told[key] = arrived
        self._log.warning(
            "sample_refused",
            node=node,
            reason=reason,
            metric=metric,
            value=value,
            offset_s=round(at - arrived, 3),
            mend=_MEND.get(reason, "see everstep_detector_samples_rejected_total"),
        )
