"""How a worker is started: its environment and command line, as torchrun would give them. Pure."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from everstep.collector.orders import StartOrder
from everstep.collector.paths import NodePaths
from everstep.collector.worker_entry import LOG_VARIABLE
from everstep.core.settings import JobCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What the standby is told to fork; `executed` means a program of its own instead of the warm interpreter."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    log: Path
    executed: bool


def _shared_environment(order: StartOrder, command: JobCommand, paths: NodePaths, node: str) -> dict[str, str]:
    resume = json.dumps(asdict(order.resume)) if order.resume is not None else "auto"
    return {
        "OMP_NUM_THREADS": "1",
        **command.environment,
        "EVERSTEP_JOB": order.job,
        "EVERSTEP_ATTEMPT": str(order.attempt),
        "EVERSTEP_NODE": node,
        "EVERSTEP_NODE_DIR": str(paths.run_dir),
        "EVERSTEP_MEMORY_DIR": str(paths.memory(order.job)),
        "EVERSTEP_RESUME": resume,
        "EVERSTEP_SKIP_BATCHES": ",".join(str(batch) for batch in order.skip_batches),
    }


def warm_launch(order: StartOrder, command: JobCommand, paths: NodePaths, node: str) -> Launch:
    """A fork of the standby, with the variables that torchrun sets."""
    return Launch(
        argv=tuple(command.program),
        environment={
            **_shared_environment(order, command, paths, node),
            "RANK": str(order.rank),
            "WORLD_SIZE": str(order.world_size),
            "LOCAL_RANK": str(order.local_rank),
            "LOCAL_WORLD_SIZE": str(order.local_world_size),
            "GROUP_RANK": str(order.node_rank),
            "ROLE_RANK": str(order.rank),
            "ROLE_WORLD_SIZE": str(order.world_size),
            "MASTER_ADDR": order.master_addr,
            "MASTER_PORT": str(order.master_port),
            "TORCHELASTIC_RUN_ID": order.job,
            "TORCHELASTIC_RESTART_COUNT": str(order.attempt),
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "EVERSTEP_RANK_RECORD": str(paths.record(order.job, order.rank)),
        },
        log=worker_log(order, paths),
        executed=False,
    )


def cold_launch(order: StartOrder, command: JobCommand, paths: NodePaths, node: str) -> Launch:
    """One torchrun for all the node's workers; `worker_entry` gives each its record and log by the rank it gets."""
    logs = paths.logs(order.job, order.attempt)
    argv = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nnodes={order.nnodes}",
        f"--node-rank={order.node_rank}",
        f"--nproc-per-node={order.local_world_size}",
        f"--master-addr={order.master_addr}",
        f"--master-port={order.master_port}",
        f"--rdzv-id={order.job}",
        "--max-restarts=0",
        "-m",
        "--",
        "everstep.collector.worker_entry",
        *command.program,
    )
    environment = {
        **_shared_environment(order, command, paths, node),
        "EVERSTEP_RANK_RECORD": str(paths.records(order.job)),
        LOG_VARIABLE: str(logs),
    }
    return Launch(argv=argv, environment=environment, log=torchrun_log(order, paths), executed=True)


def worker_log(order: StartOrder, paths: NodePaths) -> Path:
    return paths.logs(order.job, order.attempt) / f"rank-{order.rank}.log"


def torchrun_log(order: StartOrder, paths: NodePaths) -> Path:
    return paths.logs(order.job, order.attempt) / f"torchrun-{order.node_rank}.log"
