"""History window by window: what is learned of it, and that a fetch that is cut off goes on where it stood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from everstep.core.settings import DetectorSettings
from everstep.service.history import GRID_S, SPAN_S, WINDOW_S, History, Series, learned_state
from everstep.service.watch import JobWatch

World = Any
NOW = 1_800_000_000.0


class Prometheus:
    def __init__(self) -> None:
        self.asked: list[tuple[str, float, float]] = []
        self.fail_at = -1

    def __call__(self, expr: str, since: float, until: float) -> Series:
        if len(self.asked) == self.fail_at:
            self.fail_at = -1
            raise httpx.ReadTimeout("slow")
        self.asked.append((expr, since, until))
        times = np.arange(since, until, GRID_S)
        ripple = 1 + 0.01 * np.sin(times)
        if "compute" not in expr:
            return {"": [(float(at), 0.5) for at in times]}
        return {
            str(rank): [(float(at), 0.1 * (1 + rank) * float(one)) for at, one in zip(times, ripple, strict=True)]
            for rank in range(3)
        }


def test_one_metric_after_the_other_window_by_window(tmp_path: Path) -> None:
    prometheus = Prometheus()
    state = History("demo", prometheus, tmp_path / "h.json").fetch(now=NOW)
    num_windows = round(SPAN_S / WINDOW_S)
    assert len(prometheus.asked) == 2 * num_windows
    assert all("compute" in expr for expr, _, _ in prometheus.asked[:num_windows])
    assert [until for _, _, until in prometheus.asked[:num_windows]][-1] == NOW
    assert not (tmp_path / "h.json").exists()
    assert np.exp(np.median(state["baseline"]["demo/1"])) == pytest.approx(0.2, rel=0.02)
    assert np.exp(np.median(state["peers"]["demo/2"])) == pytest.approx(0.3 / (0.1 * 0.2) ** 0.5, rel=0.02)
    assert state["durations"] == [0.5] * 256


def test_a_fetch_that_was_cut_off_goes_on_where_it_stood(tmp_path: Path) -> None:
    prometheus = Prometheus()
    prometheus.fail_at = 4
    with pytest.raises(httpx.ReadTimeout):
        History("demo", prometheus, tmp_path / "h.json").fetch(now=NOW)
    state = History("demo", prometheus, tmp_path / "h.json").fetch(now=NOW + 60)
    assert len(prometheus.asked) == len(set(prometheus.asked)) == 2 * round(SPAN_S / WINDOW_S)
    assert len(state["durations"]) == 256


@pytest.mark.parametrize("left", ["", "{", "[]", '{"job": "other", "now": 1}', '{"job": "demo", "now": 1}'])
def test_what_cannot_be_used_is_fetched_anew(tmp_path: Path, left: str) -> None:
    (tmp_path / "h.json").write_text(left)
    prometheus = Prometheus()
    History("demo", prometheus, tmp_path / "h.json").fetch(now=NOW)
    assert prometheus.asked[0][1] == NOW - SPAN_S


def test_a_watch_knows_from_it_what_is_normal(tmp_path: Path) -> None:
    state = History("demo", Prometheus(), tmp_path / "h.json").fetch(now=NOW)
    watch = JobWatch("demo", DetectorSettings())
    watch.restore(state, 3)
    assert watch.deadline.learned
    assert watch.deadline.seconds() == 1.5


def test_of_an_unknown_job_nothing_is_learned() -> None:
    assert learned_state("demo", {}, {}) == {"baseline": {}, "peers": {}, "durations": []}


def test_the_monitor_takes_it_only_while_it_knows_nothing(world: World) -> None:
    assert world.monitor.needs_history("demo")
    world.monitor.learn("demo", {"durations": [0.5] * 20})
    world.monitor.tick()
    assert not world.monitor.needs_history("demo")
    world.monitor.learn("demo", {"durations": [9.0] * 200})
    world.monitor.tick()
    assert world.monitor.baselines()["demo"]["median_step_s"] == 0.5
