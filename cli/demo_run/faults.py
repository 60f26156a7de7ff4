"""Faults done to real processes and files. Each returns what was done, with the time of its first blow."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from everstep.cli.demo_run.cluster import Cluster
from everstep.cli.demo_run.evidence import Committed, committed, read_steps
from everstep.cli.demo_run.janitor import MARK, NODE_MARK, end_all, kill, marked
from everstep.cli.demo_run.scenario import JOB, VICTIM_RANK, DemoFault
from everstep.cli.demo_run.verdict import Injection
from everstep.cli.demo_run.wire import living
from everstep.core import manifest
from everstep.core.errors import EverstepError
from everstep.core.events import Entity, EntityKind

_T = TypeVar("_T")

POISON_LEAD_STEPS = 5
SLOW_FACTOR = 1.5
WAIT_S = 30.0
QUIET_S = 0.25
FLIPPED_BYTES = 64


def worker_pids(cluster: Cluster) -> dict[int, tuple[str, int]]:
    """Rank to (node, process id) of the living workers, from the agents."""
    found = {}
    for node, agent in cluster.living_agents().items():
        for worker in living(agent.get("/v1/status")["jobs"].get(JOB, {}).get("workers", [])):
            found[int(worker["rank"])] = (node, int(worker["pid"]))
    return found


def worker_nodes(cluster: Cluster) -> dict[int, str]:
    return {rank: node for rank, (node, _) in worker_pids(cluster).items()}


def inject(fault: DemoFault, cluster: Cluster) -> Injection | None:
    """Do it. Raises `EverstepError` when there is no victim or a wait ran out."""
    injector = _INJECTORS.get(fault)
    if injector is None:
        return None
    victim = worker_pids(cluster).get(VICTIM_RANK)
    if victim is None:
        raise EverstepError(f"rank {VICTIM_RANK} does not run", mend="run again with --keep and read the agents' logs")
    node, pid = victim
    return injector(cluster, node, pid)


def _injection(at: float, culprit: Entity, copies: list[Committed], batch: int | None = None) -> Injection:
    newest = max((one.step for one in copies), default=0)
    return Injection(at=at, culprit=culprit, newest_committed=newest, newest_good=newest, batch=batch)


def _rank() -> Entity:
    return Entity(kind=EntityKind.RANK, name=f"{JOB}/{VICTIM_RANK}")


def _signal_worker(cluster: Cluster, pid: int, number: signal.Signals) -> Injection:
    copies = committed(cluster.layout)
    at = time.time()
    os.kill(pid, number)
    return _injection(at, _rank(), copies)


def _kill_process(cluster: Cluster, node: str, pid: int) -> Injection:
    del node
    return _signal_worker(cluster, pid, signal.SIGKILL)


def _hang_process(cluster: Cluster, node: str, pid: int) -> Injection:
    del node
    return _signal_worker(cluster, pid, signal.SIGSTOP)


def _kill_node(cluster: Cluster, node: str, pid: int) -> Injection:
    """Everything that runs on the node at one blow, then its memory: a dead machine has none."""
    del pid
    copies = committed(cluster.layout)
    marks = {MARK: cluster.layout.demo_id, NODE_MARK: node}
    victims = marked(marks)
    at = time.time()
    kill(victims)
    left = end_all(marks, timeout_s=WAIT_S)
    if left:
        raise EverstepError(f"processes {left} of {node} did not die", mend="run the demo again")
    shutil.rmtree(cluster.layout.run_dir(node), ignore_errors=True)
    return _injection(at, Entity(kind=EntityKind.NODE, name=node), copies)


def _nan_loss(cluster: Cluster, node: str, pid: int) -> Injection:
    """Poison one rank's slice of a batch ahead.

    The poisoned step never ends well, so the injection is dated at the end of the step before it: the moment at which
    the trainer takes the poisoned batch.
    """
    del node, pid
    job_dir = cluster.layout.job_dir(JOB)
    batch = max(line.batch for line in read_steps(job_dir)) + POISON_LEAD_STEPS
    _write_json(job_dir / "poison.json", {"batches": {str(batch): {"rank": VICTIM_RANK}}})
    last = _wait(
        f"the step before batch {batch}",
        lambda: next((line for line in read_steps(job_dir) if line.batch == batch - 1), None),
    )
    culprit = Entity(kind=EntityKind.BATCH, name=f"{JOB}/{batch}")
    return _injection(last.at, culprit, committed(cluster.layout), batch=batch)


def _slow_rank(cluster: Cluster, node: str, pid: int) -> Injection:
    del pid
    copies = committed(cluster.layout)
    folder = cluster.layout.run_dir(node) / "chaos"
    folder.mkdir(exist_ok=True)
    at = time.time()
    _write_json(folder / "slow.json", {"factor": SLOW_FACTOR})
    return _injection(at, _rank(), copies)


def _corrupt_checkpoint(cluster: Cluster, node: str, pid: int) -> Injection:
    """Freeze the victim until nothing new is committed, damage every copy newer than an older disk checkpoint, kill.

    The newest committed step lives in several copies (own memory, the buddy's, disk). All of them, every newer memory
    step included, are damaged; else there would be nothing to heal from a previous copy. Dated at the first damaged
    byte: the freeze before it is preparation.
    """
    del node
    _wait("two disk checkpoints", lambda: True if len(_on_disk(committed(cluster.layout))) >= 2 else None)
    os.kill(pid, signal.SIGSTOP)
    copies = _quiet_copies(cluster)
    good = _on_disk(copies)[-2]
    doomed = [one for one in copies if one.step > good.step]
    at = time.time()
    for one in doomed:
        for copy in one.copies:
            _damage(copy)
    os.kill(pid, signal.SIGKILL)
    damaged = tuple(sorted({one.step for one in doomed}))
    culprit = Entity(kind=EntityKind.CHECKPOINT, name=f"{JOB}/step-{damaged[-1]}")
    plain = _injection(at, culprit, copies)
    return replace(plain, newest_good=good.step, damaged=damaged)


def _on_disk(copies: list[Committed]) -> list[Committed]:
    return [one for one in copies if one.tier == "disk"]


def _quiet_copies(cluster: Cluster) -> list[Committed]:
    """The committed copies once nothing has been added for a moment; peers of the frozen rank wait in a collective."""
    seen = committed(cluster.layout)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        time.sleep(QUIET_S)
        now = committed(cluster.layout)
        if now == seen:
            return now
        seen = now
    raise EverstepError("checkpoints go on while a rank is frozen", mend="run the demo again")


def _damage(copy: Path) -> None:
    """Flip bytes in the middle of the largest file of a committed copy."""
    files = manifest.read(copy).files
    name = max(files, key=lambda each: files[each].size)
    with (copy / name).open("r+b") as file:
        middle = files[name].size // 2
        file.seek(middle)
        old = file.read(FLIPPED_BYTES)
        file.seek(middle)
        file.write(bytes(byte ^ 0xFF for byte in old))


def _write_json(path: Path, content: dict[str, object]) -> None:
    """By rename, so that the trainer never reads half of it."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(json.dumps(content))
    fresh.rename(path)


def _wait(what: str, look: Callable[[], _T | None]) -> _T:
    deadline = time.monotonic() + WAIT_S
    while (seen := look()) is None:
        if time.monotonic() > deadline:
            raise EverstepError(f"waited {WAIT_S:.0f} s for {what}", mend="run again with --keep and read the logs")
        time.sleep(0.02)
    return seen


_INJECTORS: dict[DemoFault, Callable[[Cluster, str, int], Injection]] = {
    DemoFault.KILL_PROCESS: _kill_process,
    DemoFault.HANG_PROCESS: _hang_process,
    DemoFault.KILL_NODE: _kill_node,
    DemoFault.NAN_LOSS: _nan_loss,
    DemoFault.SLOW_RANK: _slow_rank,
    DemoFault.CORRUPT_CHECKPOINT: _corrupt_checkpoint,
}
