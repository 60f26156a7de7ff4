"""The programs of `examples/` as an agent starts them: two ranks, one record each."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from agent_node import AgentNode, Receiver, eventually

from everstep.core.rank_record import RankRecordReader

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEPS = 200

pytestmark = pytest.mark.integration


@pytest.fixture
def node_of(tmp_path: Path) -> Iterator[Callable[[str], AgentNode]]:
    nodes: list[AgentNode] = []
    receiver = Receiver()

    def build(program: str) -> AgentNode:
        arguments = [str(EXAMPLES / program), "--steps", str(STEPS), "--output", str(tmp_path / "output")]
        nodes.append(AgentNode(receiver, job={"program": arguments, "preload": ["torch"]}))
        return nodes[-1].start()

    yield build
    for node in nodes:
        node.remove()
    receiver.stop()


@pytest.mark.parametrize(
    ("program", "package", "cold"),
    [
        ("bare_loop.py", "torch", False),
        ("bare_loop.py", "torch", True),
        ("lightning_module.py", "pytorch_lightning", False),
        ("huggingface_trainer.py", "transformers", False),
    ],
)
def test_the_agent_sees_every_step(node_of: Callable[[str], AgentNode], program: str, package: str, cold: bool) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{program.upper()} UNDER AN AGENT NOT TESTED: {package} is not installed")
    node = node_of(program)
    store = node.post("store/start", {"job": "demo", "attempt": 1, "cold": cold}).json()
    for rank in (0,) if cold else (0, 1):  # a cold start is one torchrun for both
        answer = node.start_worker(rank, port=store["port"], cold=cold)
        assert answer.status_code == 200, answer.text
    for rank in (0, 1):
        worker: dict[str, Any] = eventually(partial(_ended, node, rank), f"the end of rank {rank}")
        log = node.folder / "log" / "demo" / "attempt-1" / f"rank-{rank}.log"
        assert worker["exit_code"] == 0, log.read_text()
        with RankRecordReader(node.run_dir / "records" / "demo" / f"rank-{rank}.rec") as reader:
            found = reader.read()
        assert (found.job, found.rank, found.world_size, found.attempt) == ("demo", rank, 2, 1)
        assert found.value("everstep_train_steps_total") == STEPS
        assert found.value("everstep_train_tokens_total") >= STEPS * 2 * 8 * 16  # both ranks' tokens
        assert found.value("everstep_train_state", "idle") == 1


def _ended(node: AgentNode, rank: int) -> dict[str, Any]:
    worker = node.worker(rank)
    return worker if worker.get("exit_code") is not None else {}
