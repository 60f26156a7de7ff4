"""What monitoring costs: the hooks of a step, a node agent at 1 Hz, and a training loop with and without all of it.

Rivals in the same run: prometheus_client for the hooks, Debian's node_exporter for the agent.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from everstep.bench.harness import BenchResult, Label, arguments, finish, provenance
from everstep.bench.overhead_run import agent, callback, training
from everstep.bench.overhead_run.agent import AgentCost, ProcessCost
from everstep.bench.overhead_run.callback import HookCost
from everstep.bench.overhead_run.training import Comparison

RIVALS = ("prometheus", "prometheus-multiprocess")
NAMES = {
    "everstep": "EverstepCallback, into shared memory",
    "prometheus": "prometheus_client, in process",
    "prometheus-multiprocess": "prometheus_client, multiprocess mode",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of each part is run."""

    steps: int
    agent_s: float
    training_s: float


QUICK = Size(steps=100_000, agent_s=10.0, training_s=12.0)
FULL = Size(steps=1_000_000, agent_s=120.0, training_s=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """All that was measured; `hooks` by contender."""

    hooks: Mapping[str, HookCost]
    agent: AgentCost
    training: Comparison


def goals(costs: Costs) -> dict[str, str]:
    """Pure: met or missed, with the reason where a number says less than it seems."""
    one = costs.agent.agent
    gpus = "" if costs.agent.num_gpu_series else f" ({costs.agent.gpu_source})"
    return {
        f"hooks <= {callback.GOAL_US:g} us a step": _met(costs.hooks["everstep"].median_us <= callback.GOAL_US),
        f"agent <= {agent.GOAL_SHARE:.0%} of a core": _met(one.core_share <= agent.GOAL_SHARE) + gpus,
        f"agent <= {agent.GOAL_BYTES / 1e6:.0f} MB resident": _met(one.rss_bytes <= agent.GOAL_BYTES) + gpus,
        f"training loses <= {training.GOAL_SHARE:.1%}": _proven(costs.training),
    }


def _proven(loss: Comparison) -> str:
    """Met or missed when the whole interval is on one side of the goal."""
    if loss.high <= training.GOAL_SHARE:
        return "met"
    if loss.low > training.GOAL_SHARE:
        return "missed"
    wide = ", wider than the goal" if loss.wider_than_goal else ""
    return f"not proven: {loss.difference:+.2%}, interval {loss.low:+.2%} to {loss.high:+.2%}{wide}"


def _met(good: bool) -> str:
    return "met" if good else "missed"


def page(costs: Costs, command: str) -> str:
    """Pure: the Markdown page."""
    told = goals(costs)
    lines = ["# Overhead\n", "Real processes on this machine.\n", *_hooks_table(costs), *_agent_table(costs.agent)]
    lines += [*_training_lines(costs.training), "## Goals\n", *(f"- {name}: {word}" for name, word in told.items())]
    return "\n".join(lines) + "\n\n" + provenance(command)


def _hooks_table(costs: Costs) -> list[str]:
    rows = [
        f"| {NAMES[name]} | {one.steps:,} | {one.median_us:.2f} | {one.p99_us:.2f} | {one.worst_us:,.0f} |"
        for name, one in costs.hooks.items()
    ]
    return [
        "## Hooks of one step\n",
        "step_begin, the phases forward, backward and optimizer, step_end with loss, norm and rate. The client sets,",
        "increments and observes the same numbers; only its multiprocess mode can be read by another process, as the",
        "rank record can.\n",
        "| what | steps | median, us | 99th percentile, us | worst, us |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
    ]


def _agent_table(cost: AgentCost) -> list[str]:
    rows = [("everstep agent", cost.agent)]
    rows += [("prometheus-node-exporter, scraped at 1 Hz", cost.exporter)] if cost.exporter is not None else []
    per_push = f"{cost.num_series} series a push, {cost.num_gpu_series} of them of {agent.GPUS} GPUs"
    return [
        "## Agent at 1 Hz\n",
        f"{per_push} ({cost.gpu_source}); {agent.GPUS} rank records that step once a second; scraped every",
        f"{agent.SCRAPE_EVERY_S:g} s besides; {cost.num_pushes} pushes over {cost.agent.seconds:g} s. With all child",
        "processes of the agent, without workers.\n",
        "| what | share of a core | resident, MB | proportional, MB | processes |",
        "| --- | --- | --- | --- | --- |",
        *(_process_row(name, one) for name, one in rows),
        "",
    ]


def _process_row(name: str, one: ProcessCost) -> str:
    rss, pss = one.rss_bytes / 1e6, one.pss_bytes / 1e6
    return f"| {name} | {one.core_share:.2%} | {rss:.1f} | {pss:.1f} | {one.num_processes} |"


def _training_lines(one: Comparison) -> list[str]:
    return [
        "## Training with and without\n",
        f"The bundled decoder on one core, {one.step_ms:.1f} ms a step, {one.num_steps:,} steps in {one.num_groups}",
        "groups of four alternating blocks: callback and agent on, both off, both off, on. Lost throughput, median of",
        f"the groups: **{one.difference:+.3%}**, 95 % interval {one.low:+.3%} to {one.high:+.3%} (bootstrap);",
        f"by CPU time of the training thread {one.cpu_difference:+.3%}, {one.cpu_low:+.3%} to {one.cpu_high:+.3%}.",
        "A negative loss is noise. The agent has a core of its own; where training takes every core, its share of a",
        "core above comes on top.",
        *(["The interval is wider than the goal: this run cannot prove it."] if one.wider_than_goal else []),
        "",
    ]


def measures(costs: Costs) -> dict[str, Any]:
    return {
        "hooks_us": callback.as_measures(costs.hooks["everstep"]),
        "agent": {key: value for key, value in asdict(costs.agent).items() if key != "exporter"},
        "training": asdict(costs.training),
    }


def rivals(costs: Costs) -> dict[str, Any]:
    found: dict[str, Any] = {NAMES[name]: callback.as_measures(costs.hooks[name]) for name in RIVALS}
    exporter = costs.agent.exporter
    found["prometheus-node-exporter"] = asdict(exporter) if exporter is not None else "not installed"
    return found


def run(size: Size, *, seed: int) -> Costs:
    hooks = {}
    for name in ("everstep", *RIVALS):
        hooks[name] = callback.in_own_process(name, size.steps)
        print(f"{NAMES[name]}: {hooks[name].median_us:.2f} us a step", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        spent = agent.measure(Path(folder), seconds=size.agent_s)
    one = spent.agent
    print(f"agent: {one.core_share:.2%} of a core, {one.rss_bytes / 1e6:.1f} MB, {spent.gpu_source}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        loss = training.measure(Path(folder), seconds=size.training_s, seed=seed)
    by_cpu = f"by CPU time {loss.cpu_difference:+.3%} ({loss.cpu_low:+.3%} to {loss.cpu_high:+.3%})"
    print(f"training: {loss.difference:+.3%} ({loss.low:+.3%} to {loss.high:+.3%}), {by_cpu}", flush=True)
    return Costs(hooks=hooks, agent=spent, training=loss)


def main(argv: list[str] | None = None) -> int:
    options = arguments("overhead", "Cost of callback, agent and both together.").parse_args(argv)
    costs = run(FULL if options.full else QUICK, seed=options.seed)
    told = goals(costs)
    size = "--full" if options.full else "--quick"
    result = BenchResult(
        bench="overhead",
        ok=not any(word.startswith("missed") for word in told.values()),
        label=Label.REAL,
        seed=options.seed,
        measures=measures(costs),
        goals=told,
        rivals=rivals(costs),
    )
    return finish(result, page(costs, f"python -m everstep.bench.overhead {size} --seed {options.seed}"))


if __name__ == "__main__":
    sys.exit(main())
