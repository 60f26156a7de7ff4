"""The pure parts of the overhead bench, from hand-written numbers."""

from __future__ import annotations

import doctest
from array import array
from dataclasses import replace

import pytest

from everstep.bench import overhead
from everstep.bench.overhead_run import agent, callback, training
from everstep.bench.overhead_run.agent import AgentCost, ProcessCost
from everstep.bench.overhead_run.callback import HookCost
from everstep.bench.overhead_run.training import ORDER, Comparison

HOOK = HookCost(steps=1000, median_us=9.0, p99_us=20.0, worst_us=400.0)
PROCESS = ProcessCost(seconds=60.0, core_share=0.008, rss_bytes=50_000_000, pss_bytes=40_000_000, num_processes=1)
AGENT = AgentCost(
    agent=PROCESS, exporter=None, num_pushes=60, num_series=900, num_gpu_series=640, gpu_source="fake NVML"
)
LOSS = Comparison(
    num_groups=40,
    num_steps=3000,
    step_ms=20.0,
    difference=0.001,
    low=-0.0005,
    high=0.0018,
    cpu_difference=0.0008,
    cpu_low=0.0004,
    cpu_high=0.0011,
)
COSTS = overhead.Costs(
    hooks={"everstep": HOOK, "prometheus": HOOK, "prometheus-multiprocess": HOOK}, agent=AGENT, training=LOSS
)


@pytest.mark.parametrize("module", [agent, callback, training])
def test_the_examples_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_hook_cost_takes_off_the_clock_and_names_the_worst() -> None:
    cost = callback.cost(array("q", [1_100, 5_100, 3_100, 9_100]), 100.0)
    assert (cost.steps, cost.median_us, cost.worst_us) == (4, 4.0, 9.0)


def test_alternation_cancels_a_linear_drift() -> None:
    """Every block is slower than the one before; monitored ones are 1 % slower than that."""
    drift = [[(1.0 + 0.001 * at) * (1.01 if on else 1.0) for at, on in enumerate(ORDER)] for _ in range(20)]
    assert training.compare(drift, drift, seed=1, num_steps=80).difference == pytest.approx(0.01, abs=2e-4)


def test_the_interval_holds_the_estimate_and_repeats_with_its_seed() -> None:
    groups = [[1.0 + 0.001 * ((7 * at + place) % 5) for place in range(4)] for at in range(30)]
    one = training.compare(groups, groups, seed=3, num_steps=1)
    assert one.low <= one.difference <= one.high
    assert one == training.compare(groups, groups, seed=3, num_steps=1)


def test_no_block_is_no_result() -> None:
    with pytest.raises(ValueError, match="no group"):
        training.compare([], [], seed=1, num_steps=0)


def test_all_goals_met() -> None:
    assert set(overhead.goals(COSTS).values()) == {"met"}


def test_each_goal_can_be_missed() -> None:
    slow = replace(HOOK, median_us=20.1)
    greedy = replace(PROCESS, core_share=0.0101, rss_bytes=60_000_001)
    costs = overhead.Costs(
        hooks={**COSTS.hooks, "everstep": slow},
        agent=replace(AGENT, agent=greedy),
        training=replace(LOSS, low=0.0021, high=0.004),
    )
    assert [word.split()[0] for word in overhead.goals(costs).values()] == ["missed"] * 4


def test_a_wide_interval_and_missing_gpus_are_said_beside_the_goal() -> None:
    blind = replace(AGENT, num_gpu_series=0, gpu_source="no GPU source")
    told = overhead.goals(replace(COSTS, agent=blind, training=replace(LOSS, low=-0.01, high=0.01)))
    assert told["agent <= 1% of a core"] == "met (no GPU source)"
    wide = "not proven: +0.10%, interval -1.00% to +1.00%, wider than the goal"
    assert told["training loses <= 0.2%"] == wide


def test_the_cpu_time_is_compared_by_itself() -> None:
    one = training.compare([[1.0] * 4] * 5, [[1.02, 1.0, 1.0, 1.02]] * 5, seed=1, num_steps=1)
    assert one.difference == 0.0
    assert one.cpu_difference == pytest.approx(0.0196, abs=1e-4)


def test_the_page_shows_each_contender_and_the_interval() -> None:
    page = overhead.page(replace(COSTS, agent=replace(AGENT, exporter=PROCESS)), "command")
    assert "| EverstepCallback, into shared memory | 1,000 | 9.00 | 20.00 | 400 |" in page
    assert "| prometheus-node-exporter, scraped at 1 Hz | 0.80% | 50.0 | 40.0 | 1 |" in page
    assert "**+0.100%**, 95 % interval -0.050% to +0.180%" in page
    assert "cannot prove" not in page
