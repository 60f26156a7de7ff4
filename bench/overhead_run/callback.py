"""What the hooks of one training step cost, beside prometheus_client writing down the same numbers.

Run as a program it measures one contender in a process of its own (the client's multiprocess mode is chosen by the
environment at import) and prints one JSON object.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, perf_counter_ns, time

import numpy as np

from everstep.core.metrics.training import STEP_BUCKETS
from everstep.core.rank_record import RankRecordWriter
from everstep.trainer_integration import EverstepCallback

GOAL_US = 20.0
WARM_STEPS = 1_000
TIMEOUT_S = 300.0
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
PHASES = ("forward", "backward", "optimizer")

Step = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCost:
    """Microseconds a step over `steps` steps, the reading of the clock itself taken off."""

    steps: int
    median_us: float
    p99_us: float
    worst_us: float


def cost(nanoseconds: array[int], clock_ns: float) -> HookCost:
    """Pure: from the duration of each step and what an empty one reads.

    >>> cost(array("q", [1100, 2100, 3100]), 100.0).median_us
    2.0
    """
    taken = (np.frombuffer(nanoseconds, dtype=np.int64) - clock_ns) / 1000.0
    return HookCost(
        steps=len(taken),
        median_us=round(float(np.median(taken)), 2),
        p99_us=round(float(np.percentile(taken, 99)), 2),
        worst_us=round(float(taken.max()), 1),
    )


def measure(step: Step, steps: int) -> HookCost:
    """Time each call of `step` by itself, after a warm-up."""
    for number in range(WARM_STEPS):
        step(number + 1)
    empty = _durations(lambda _: None, WARM_STEPS)
    return cost(_durations(step, steps), float(np.median(np.frombuffer(empty, dtype=np.int64))))


def _durations(step: Step, steps: int) -> array[int]:
    taken = array("q", bytes(8 * steps))
    for number in range(steps):
        began = perf_counter_ns()
        step(number + 1)
        taken[number] = perf_counter_ns() - began
    return taken


def everstep_step(folder: Path) -> Step:
    """The hooks that the bundled trainer calls in each step, on a rank record in `folder`."""
    record = RankRecordWriter(folder / "rank-0.rec", job="bench", rank=0, world_size=1, attempt=1)
    callback = EverstepCallback(record, attempt=1, peak_flops=1e15)
    callback.on_train_start()
    forward, backward, optimizer = PHASES

    def step(number: int) -> None:
        callback.step_begin(number)
        with callback.phase(forward):
            pass
        with callback.phase(backward):
            pass
        with callback.phase(optimizer):
            pass
        callback.step_end(
            number,
            loss=2.5,
            gradient_norm=0.7,
            learning_rate=1e-3,
            tokens=number * 1024,
            batch_index=number,
            sample_hash=12345,
            flops=1e12,
        )

    return step


def prometheus_step() -> Step:
    """The same numbers as set, inc and observe on children that were looked up beforehand."""
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

    registry = CollectorRegistry()
    own = {"train_job": "bench", "rank": "0"}

    def gauge(name: str) -> Gauge:
        made = Gauge(f"bench_{name}", name, list(own), registry=registry)
        return made.labels(**own)

    names = ("loss", "gradient_norm", "learning_rate", "compute", "batch", "sample_hash", "last_step_at", "mfu")
    loss, norm, rate, compute, batch, sample_hash, last_at, mfu = (gauge(name) for name in names)
    tokens, steps = (Counter(f"bench_{name}", name, list(own), registry=registry).labels(**own) for name in ("t", "s"))
    phases = Counter("bench_phase_seconds", "phases", [*own, "phase"], registry=registry)
    forward, backward, optimizer = (phases.labels(**own, phase=phase) for phase in PHASES)
    duration = Histogram("bench_step", "duration", list(own), buckets=STEP_BUCKETS, registry=registry).labels(**own)

    def step(number: int) -> None:
        began = perf_counter()
        for phase in (forward, backward, optimizer):
            phase_began = perf_counter()
            phase.inc(perf_counter() - phase_began)
        took = perf_counter() - began
        loss.set(2.5)
        norm.set(0.7)
        rate.set(1e-3)
        compute.set(took)
        batch.set(number)
        sample_hash.set(12345)
        last_at.set(time())
        mfu.set(1e12 / (took * 1e15))
        tokens.inc(1024)
        steps.inc()
        duration.observe(took)

    return step


def in_own_process(contender: str, steps: int) -> HookCost:
    """Measure `everstep`, `prometheus` or `prometheus-multiprocess` in a child. Raises `RuntimeError` when it fails."""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        environment = dict(os.environ)
        environment.pop(MULTIPROCESS, None)
        if contender == "prometheus-multiprocess":
            environment[MULTIPROCESS] = folder
        done = subprocess.run(
            [sys.executable, "-m", "everstep.bench.overhead_run.callback", contender, str(steps), folder],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{contender} failed: {done.stderr.strip()[-300:]}")
    return HookCost(**json.loads(done.stdout))


def _memory() -> str | None:
    """Where agents keep rank records: tmpfs where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a fresh folder of ours inside it


def as_measures(one: HookCost) -> Mapping[str, float]:
    return {key: value for key, value in asdict(one).items() if math.isfinite(value)}


def main(words: list[str]) -> None:
    contender, steps, folder = words[0], int(words[1]), Path(words[2])
    step = everstep_step(folder) if contender == "everstep" else prometheus_step()
    print(json.dumps(asdict(measure(step, steps))))


if __name__ == "__main__":
    main(sys.argv[1:])
