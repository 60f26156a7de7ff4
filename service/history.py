"""What was normal before the service began to listen: baselines of a job from Prometheus, by range queries.

One metric at a time, one window of time at a time, oldest first; each answer is kept in a file at once, so that a
fetch that is cut off goes on where it stood. What comes out is the state that `JobWatch.restore` takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from everstep.detector.peers import peer_residuals

SPAN_S = 6 * 3600.0
WINDOW_S = 3600.0
GRID_S = 15.0
KEPT = 256
TIMEOUT_S = 10.0
MOST_BYTES = 256 * 2**20

Series = dict[str, list[tuple[float, float]]]
Query = Callable[[str, float, float], Series]
"""(expression, from, to) to samples by rank, on a grid of `GRID_S`. Raises `httpx.HTTPError` or `ValueError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A metric and how it is asked for; `{job}` stands for the job."""

    name: str
    expr: str


ASKED = (
    Asked(name="compute", expr='max by (rank) (everstep_train_step_compute_seconds{{train_job="{job}"}})'),
    Asked(
        name="duration",
        expr='min by (train_job) (1 / (rate(everstep_train_steps_total{{train_job="{job}"}}[1m]) > 0))',
    ),
)


class History:
    """One job's; used by one thread. `file` holds what was fetched so far."""

    def __init__(self, job: str, query: Query, file: Path) -> None:
        self._job = job
        self._query = query
        self._file = file

    def fetch(self, *, now: float) -> dict[str, Any]:
        """The learned state, empty where Prometheus knows nothing of the job."""
        kept = self._load(now)
        for asked in ASKED:
            held = kept["metrics"].setdefault(asked.name, {"until": kept["since"], "series": {}})
            while held["until"] < kept["now"]:
                until = min(held["until"] + WINDOW_S, kept["now"])
                for rank, samples in self._query(asked.expr.format(job=self._job), held["until"], until).items():
                    held["series"].setdefault(rank, []).extend(samples)
                held["until"] = until
                self._save(kept)
        self._file.unlink(missing_ok=True)
        return learned_state(self._job, kept["metrics"]["compute"]["series"], kept["metrics"]["duration"]["series"])

    def _load(self, now: float) -> dict[str, Any]:
        """What a former fetch left, unless it is so old that it ends before the span begins."""
        try:
            kept = json.loads(self._file.read_text())
            if kept["job"] == self._job and now - SPAN_S < kept["now"] <= now:
                return dict(kept)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # nothing usable is there: begin anew
        return {"job": self._job, "since": now - SPAN_S, "now": now, "metrics": {}}

    def _save(self, kept: Mapping[str, Any]) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(kept))
        fresh.replace(self._file)


def learned_state(job: str, compute: Series, duration: Series) -> dict[str, Any]:
    """Pure: the newest `KEPT` compute seconds of each rank in logs, their ratios to the peers, and step durations."""
    times = sorted({at for samples in compute.values() for at, _ in samples})[-KEPT:]
    column = {at: index for index, at in enumerate(times)}
    ranks = sorted((rank for rank in compute if rank.isascii() and rank.isdigit()), key=int)
    values = np.full((len(ranks), len(times)), np.nan)
    for row, rank in enumerate(ranks):
        for at, value in compute[rank]:
            if at in column and value > 0:
                values[row, column[at]] = value
    residuals = peer_residuals(values)
    return {
        "baseline": {f"{job}/{rank}": _finite(np.log(values[row])) for row, rank in enumerate(ranks)},
        "peers": {f"{job}/{rank}": _finite(residuals[row]) for row, rank in enumerate(ranks)},
        "durations": [value for samples in duration.values() for _, value in samples if 0 < value < math.inf][-KEPT:],
    }


def range_query(url: str) -> Query:
    """Asks the Prometheus at this address."""

    def query(expr: str, since: float, until: float) -> Series:
        asked = {"query": expr, "start": f"{since:.3f}", "end": f"{until:.3f}", "step": f"{GRID_S:g}"}
        answer = httpx.get(f"{url.rstrip('/')}/api/v1/query_range", params=asked, timeout=TIMEOUT_S)
        answer.raise_for_status()
        if len(answer.content) > MOST_BYTES:
            raise ValueError(f"the answer is longer than {MOST_BYTES} bytes")
        found = answer.json()["data"]["result"]
        return {
            str(one["metric"].get("rank", "")): [(float(at), float(value)) for at, value in one["values"]]
            for one in found
        }

    return query


def _finite(row: Any) -> list[float]:
    return [float(value) for value in row if math.isfinite(value)]
