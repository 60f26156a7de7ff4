"""The uninterrupted run to compare with: same configuration, same agents, no fault, no checkpoints, no controller."""

from __future__ import annotations

import time

from everstep.cli.demo_run.cluster import Cluster
from everstep.cli.demo_run.evidence import read_steps
from everstep.cli.demo_run.scenario import JOB, REFERENCE_JOB, WORLD_SIZE
from everstep.cli.demo_run.screen import Screen
from everstep.cli.demo_run.verdict import StepLine
from everstep.cli.demo_run.wire import STOP_TIMEOUT_S, living
from everstep.core.errors import EverstepError

POLL_S = 0.2
ROOM_TIMEOUT_S = 15.0


def run_reference(
    cluster: Cluster, screen: Screen, *, skip: tuple[int, ...], total_steps: int, deadline: float
) -> tuple[StepLine, ...]:
    """Train it to the end on the living agents. Raises `EverstepError` when it fails or the deadline passes."""
    nodes = list(cluster.living_agents())[:WORLD_SIZE]
    for node in nodes:
        _make_room(cluster, node)
    store = cluster.agents[nodes[0]].post(
        "/v1/store/start", {"job": REFERENCE_JOB, "attempt": 1, "cold": False}, timeout_s=STOP_TIMEOUT_S
    )
    for rank, node in enumerate(nodes):
        order = {
            "job": REFERENCE_JOB,
            "attempt": 1,
            "rank": rank,
            "local_rank": 0,
            "local_world_size": 1,
            "world_size": WORLD_SIZE,
            "node_rank": rank,
            "nnodes": WORLD_SIZE,
            "master_addr": store["host"],
            "master_port": store["port"],
            "resume": None,
            "skip_batches": list(skip),
            "cold": False,
        }
        cluster.agents[node].post("/v1/workers/start", order)
    return _wait(cluster, screen, nodes, total_steps, deadline)


def _make_room(cluster: Cluster, node: str) -> None:
    """Wait for the broken job's worker to end by itself; one that hangs on after a failed recovery is stopped."""
    agent = cluster.agents[node]
    deadline = time.monotonic() + ROOM_TIMEOUT_S
    while workers := living(agent.get("/v1/status")["jobs"].get(JOB, {}).get("workers", [])):
        if time.monotonic() > deadline:
            order = {"job": JOB, "attempt": workers[0]["attempt"], "grace_s": 0}
            agent.post("/v1/workers/stop", order, timeout_s=STOP_TIMEOUT_S)
            return
        time.sleep(POLL_S)


def _wait(
    cluster: Cluster, screen: Screen, nodes: list[str], total_steps: int, deadline: float
) -> tuple[StepLine, ...]:
    while True:
        steps = read_steps(cluster.layout.job_dir(REFERENCE_JOB))
        if steps:
            screen.step(steps[-1].step, steps[-1].loss, "reference")
            if steps[-1].step >= total_steps:
                return steps
        for node in nodes:
            _check_workers(cluster, node)
        if time.monotonic() > deadline:
            raise EverstepError("the reference run did not end in time", mend="run again with --keep and read its logs")
        time.sleep(POLL_S)


def _check_workers(cluster: Cluster, node: str) -> None:
    for worker in cluster.agents[node].get("/v1/status")["jobs"].get(REFERENCE_JOB, {}).get("workers", []):
        if worker["state"] in {"exited", "killed"} and worker["exit_code"] != 0:
            raise EverstepError(
                f"rank {worker['rank']} of the reference run ended with {worker['exit_code']} ({worker['reason']})",
                mend="run again with --keep and read its log",
            )
