"""Where one demo run keeps its things, and the configuration files that its processes read."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from everstep.cli.demo_run.scenario import JOB, NODES, SPARE, WORLD_SIZE
from everstep.core.errors import EverstepError

SHM = Path("/dev/shm")  # noqa: S108 - tmpfs is the memory tier; every folder below is ours alone and 0700
SHM_NEEDED_BYTES = 512 * 2**20
OUTPUT_NEEDED_BYTES = 128 * 2**20  # three checkpoints of 8 MiB, one being written, logs, report
PORTS = range(20_000, 32_000)  # below the ephemeral range, so that no outgoing connection takes one meanwhile
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Folders, ports and tokens of one run; `root` is scratch on disk, `memory` scratch in tmpfs."""

    demo_id: str
    root: Path
    memory: Path
    service_port: int
    agent_ports: Mapping[str, int]

    @property
    def service_url(self) -> str:
        return f"http://{HOST}:{self.service_port}"

    def agent_url(self, node: str) -> str:
        return f"http://{HOST}:{self.agent_ports[node]}"

    def run_dir(self, node: str) -> Path:
        return self.memory / node

    def log_dir(self, node: str) -> Path:
        return self.root / "logs" / node

    def job_dir(self, job: str) -> Path:
        return self.root / "jobs" / job

    @property
    def service_token(self) -> Path:
        return self.root / "service.token"

    @property
    def agent_token(self) -> Path:
        return self.root / "agent.token"

    def config(self, name: str) -> Path:
        return self.root / f"{name}.yaml"


def scratch(output: Path, demo_id: str) -> tuple[Path, Path]:
    """The folders of a run on disk and in tmpfs; known before they are there, so that no crash leaves them behind."""
    return output.resolve() / f".run-{demo_id[:8]}", SHM / f"everstep-demo-{os.getpid()}-{demo_id[:8]}"


def prepare(output: Path, demo_id: str) -> Layout:
    """Create the folders of a run. Raises `EverstepError` where one cannot be written or space is short."""
    root, memory = scratch(output, demo_id)
    try:
        output.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700)
        free = shutil.disk_usage(output).free
    except OSError as error:
        raise EverstepError(
            f"cannot write to {output} ({error.strerror})", mend="choose another folder with --output"
        ) from error
    if free < OUTPUT_NEEDED_BYTES:
        raise EverstepError(
            f"{output} has {free // 2**20} MiB free, the demo needs {OUTPUT_NEEDED_BYTES // 2**20}",
            mend="free some, or choose another folder with --output",
        )
    _make_shared(memory)
    ports = free_ports(1 + len(NODES))
    layout = Layout(
        demo_id=demo_id,
        root=root,
        memory=memory,
        service_port=ports[0],
        agent_ports=dict(zip(NODES, ports[1:], strict=True)),
    )
    for token in (layout.service_token, layout.agent_token):
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
    return layout


def _make_shared(folder: Path) -> None:
    try:
        free = shutil.disk_usage(SHM).free
    except OSError as error:
        raise EverstepError(f"{SHM} cannot be used ({error.strerror})", mend="mount a tmpfs there") from error
    if free < SHM_NEEDED_BYTES:
        raise EverstepError(
            f"{SHM} has {free // 2**20} MiB free, the demo needs {SHM_NEEDED_BYTES // 2**20}",
            mend="free some, or remount it larger (docker: --shm-size=1g)",
        )
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise EverstepError(f"cannot write to {SHM} ({error.strerror})", mend="make it writable") from error


def free_ports(number: int) -> list[int]:
    """Loopback ports that nobody listens on. Raises `EverstepError` when too few are found."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, k=200):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == number:
            return found
    raise EverstepError(
        f"no {number} free ports between {PORTS.start} and {PORTS.stop}", mend="end the processes that listen there"
    )


def write_service_config(layout: Layout, *, cold: bool) -> None:
    """`service.yaml`: the four nodes (one a spare) and the job that the service looks after."""
    section = {
        "listen": {"host": HOST, "port": layout.service_port, "token_file": str(layout.service_token)},
        "data_dir": str(layout.root / "service"),
        "agent_token_file": str(layout.agent_token),
        "nodes": [{"name": node, "agent_url": layout.agent_url(node), "spare": node == SPARE} for node in NODES],
        "jobs": [{"name": JOB, "world_size": WORLD_SIZE, "cold": cold}],
    }
    _write(layout.config("service"), {"service": section})


def write_agent_config(layout: Layout, node: str, jobs: list[dict[str, Any]]) -> None:
    """`<node>.yaml`: where the agent listens and pushes to, and the commands that it may run."""
    section = {
        "node": node,
        "cluster": "demo",
        "listen": {"host": HOST, "port": layout.agent_ports[node], "token_file": str(layout.agent_token)},
        "service_url": layout.service_url,
        "service_token_file": str(layout.service_token),
        "run_dir": str(layout.run_dir(node)),
        "log_dir": str(layout.log_dir(node)),
        "orphan_grace_s": 5.0,
        "jobs": jobs,
    }
    _write(layout.config(node), {"agent": section})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
