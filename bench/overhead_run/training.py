"""Training throughput with monitoring and without: one small decoder on one core, in alternating blocks (ABBA).

Monitored blocks run the loop with a callback that writes a rank record, which a running agent polls and pushes. In the
others the callback is inert and the agent is frozen (SIGSTOP), so that it takes no cycle. Training has one core to
itself and the agent the others, as on a node whose cores outnumber its GPUs. The clock never spans the switch.

On a machine that others use, too, their noise is larger than the goal. CPU seconds of the training thread are measured
beside: they leave out what others take, though not how they disturb caches, and what waiting would cost.

Run as a program it trains and prints one JSON object: seconds a step of each block, of the clock and of the CPU.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from everstep.bench.overhead_run.agent import Sink, agent_config, free_port, running_agent, serving
from everstep.bench.overhead_run.gpu_library import gpu_source

GOAL_SHARE = 0.002
GPUS = 8
ORDER = (True, False, False, True)
"""Monitored or not, in each group of four blocks: a drift that is linear over the group cancels out."""

MONITORED = np.array(ORDER)
BLOCK_S = 0.5
WARM_S = 3.0
RESAMPLES = 4000
TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`difference` is the throughput lost to monitoring as a share, `low` and `high` its 95 % interval.

    Those that begin with `cpu_` are the same for steps a CPU second.
    """

    num_groups: int
    num_steps: int
    step_ms: float
    difference: float
    low: float
    high: float
    cpu_difference: float
    cpu_low: float
    cpu_high: float

    @property
    def wider_than_goal(self) -> bool:
        """Whether the interval cannot tell a loss of the goal's size from none."""
        return self.high - self.low > 2 * GOAL_SHARE


def compare(
    blocks: Sequence[Sequence[float]], cpu_blocks: Sequence[Sequence[float]], *, seed: int, num_steps: int
) -> Comparison:
    """Pure: from groups of four step times (seconds, in the order of `ORDER`) by the clock and by the CPU.

    >>> compare([[1.01, 1.0, 1.0, 1.01]] * 8, [[1.0] * 4] * 8, seed=1, num_steps=32).difference
    0.009901
    """
    times = np.array(blocks, dtype=np.float64).reshape(-1, len(ORDER))
    if not len(times):
        raise ValueError("no group of blocks was measured")
    difference, low, high = _lost(times, seed)
    cpu_difference, cpu_low, cpu_high = _lost(np.array(cpu_blocks, dtype=np.float64).reshape(-1, len(ORDER)), seed)
    return Comparison(
        num_groups=len(times),
        num_steps=num_steps,
        step_ms=round(float(np.median(times[:, ~MONITORED])) * 1000, 3),
        difference=difference,
        low=low,
        high=high,
        cpu_difference=cpu_difference,
        cpu_low=cpu_low,
        cpu_high=cpu_high,
    )


def _lost(times: NDArray[np.float64], seed: int) -> tuple[float, float, float]:
    """The median over the groups of what each lost by itself, with its interval: slow drift stays out of it.

    Bootstrap over groups, percentile interval (Efron, 1979).
    """
    lost = 1.0 - times[:, ~MONITORED].sum(axis=1) / times[:, MONITORED].sum(axis=1)
    picks = np.random.default_rng(seed).integers(0, len(lost), size=(RESAMPLES, len(lost)))
    low, high = np.percentile(np.median(lost[picks], axis=1), [2.5, 97.5])
    return round(float(np.median(lost)), 6), round(float(low), 6), round(float(high), 6)


def measure(folder: Path, *, seconds: float, seed: int) -> Comparison:
    """Train for about so long in a child beside a real agent. Raises `RuntimeError` when the child fails."""
    cores = sorted(os.sched_getaffinity(0))
    port, sink = free_port(), Sink()
    gpus = gpu_source(folder, num_gpus=GPUS)
    config = agent_config(folder, port, f"http://127.0.0.1:{sink.server_port}", gpus)
    records = folder / "run/records/bench"
    records.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        held.enter_context(serving(sink))
        held.enter_context(_pinned(cores[1:] or cores))
        agent = held.enter_context(running_agent(config, folder, port, gpus))
        words = [str(records / "rank-0.rec"), str(agent), str(cores[0]), str(seconds), str(seed)]
        done = subprocess.run(
            [sys.executable, "-m", "everstep.bench.overhead_run.training", *words],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"the training child failed: {done.stderr.strip()[-500:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return compare(told["blocks"], told["cpu_blocks"], seed=seed, num_steps=told["num_steps"])


@contextmanager
def _pinned(cores: list[int]) -> Iterator[None]:
    """This process, and what it starts, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Loop:
    """The bundled trainer's model and optimiser in one process, driven step by step with a callback's hooks."""

    def __init__(self, record: Path, seed: int) -> None:
        import torch

        from everstep.core.rank_record import RankRecordWriter
        from everstep.trainer.config import ModelConfig
        from everstep.trainer.model import Decoder, flops_per_token, initialise
        from everstep.trainer_integration import EverstepCallback

        torch.set_num_threads(1)
        config = ModelConfig()
        self._model = Decoder(config)
        initialise(self._model, seed=seed, layers=config.layers)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        shape = (2, config.context + 1)
        self._tokens = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed))
        self._weights = torch.ones(shape[0], config.context)
        self._backward = torch.autograd.backward
        self._flops = flops_per_token(config) * shape[0] * config.context
        writer = RankRecordWriter(record, job="bench", rank=0, world_size=1, attempt=1)
        self._callbacks = {True: EverstepCallback(writer, attempt=1, peak_flops=1e12), False: EverstepCallback()}
        self._callbacks[True].on_train_start()
        self.steps = 0

    def step(self, *, monitored: bool) -> None:
        from everstep.trainer.model import weighted_loss

        callback = self._callbacks[monitored]
        self.steps += 1
        callback.step_begin(self.steps)
        self._optimizer.zero_grad(set_to_none=True)
        with callback.phase("forward"):
            loss = weighted_loss(self._model(self._tokens[:, :-1]), self._tokens[:, 1:], self._weights)
            loss = loss / self._weights.sum()
        with callback.phase("backward"):
            self._backward(loss)
        with callback.phase("optimizer"):
            self._optimizer.step()
        value = float(loss.detach())
        callback.step_end(
            self.steps,
            loss=value,
            learning_rate=1e-3,
            tokens=256 * self.steps,
            batch_index=self.steps,
            flops=self._flops,
        )
        if not math.isfinite(value):
            raise FloatingPointError(f"loss {value} at step {self.steps}")

    def block(self, *, monitored: bool, seconds: float) -> tuple[float, float]:
        """Seconds a step over a block of about that length, by the clock and by the CPU."""
        began, cpu_began = time.perf_counter(), time.thread_time()
        first = self.steps
        while (now := time.perf_counter()) - began < seconds:
            self.step(monitored=monitored)
        taken = self.steps - first
        return (now - began) / taken, (time.thread_time() - cpu_began) / taken


class Agent:
    """Frozen and thawed between blocks; thawed when left."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def let_run(self, running: bool) -> None:
        os.kill(self._pid, signal.SIGCONT if running else signal.SIGSTOP)


def main(words: Sequence[str]) -> None:
    record, agent, core, seconds, seed = (
        Path(words[0]),
        Agent(int(words[1])),
        int(words[2]),
        float(words[3]),
        int(words[4]),
    )
    os.sched_setaffinity(0, [core])
    loop = Loop(record, seed)
    loop.block(monitored=True, seconds=WARM_S)
    groups: list[list[tuple[float, float]]] = []
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until or not groups:
            groups.append([_block(loop, agent, monitored) for monitored in ORDER])
    finally:
        agent.let_run(True)
    by_clock, by_cpu = ([[block[at] for block in group] for group in groups] for at in (0, 1))
    print(json.dumps({"blocks": by_clock, "cpu_blocks": by_cpu, "num_steps": loop.steps}))


def _block(loop: Loop, agent: Agent, monitored: bool) -> tuple[float, float]:
    agent.let_run(monitored)
    loop.step(monitored=monitored)  # caches and clocks settle after the switch
    return loop.block(monitored=monitored, seconds=BLOCK_S)


if __name__ == "__main__":
    main(sys.argv[1:])
