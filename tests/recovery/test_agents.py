"""The agents' engine against sockets that misbehave."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.core.engine import Attempt, RankPlacement
from everstep.core.errors import ConfigError, EngineError
from everstep.core.topology import Node, Topology
from everstep.recovery.engines.agents import AgentsEngine

ATTEMPT = Attempt(job="demo", number=1, placements=(RankPlacement(rank=0, node="node-0", local_rank=0),))


def engine_at(url: str) -> AgentsEngine:
    return AgentsEngine(Topology.of([Node(name="node-0", agent_url=url)]), "token")


@pytest.fixture
def mute() -> Iterator[str]:
    """A socket that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def detail(url: str) -> str:
    engine = engine_at(url)
    try:
        return engine.snapshot(timeout_s=0.2).nodes["node-0"].detail
    finally:
        engine.close()


def test_silence_is_a_timeout_and_a_closed_port_a_refusal(mute: str) -> None:
    assert detail(mute) == "timeout"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert detail(f"http://127.0.0.1:{port}") == "refused"


def test_an_address_that_is_none_is_told(mute: str) -> None:
    assert detail("") == "no agent_url in the topology"
    assert "unusable agent_url" in detail("http://127.0.0.1:notaport")


def test_a_node_that_just_did_not_answer_is_not_waited_for_again(mute: str) -> None:
    engine = engine_at(mute)
    try:
        assert not engine.snapshot(timeout_s=0.2).nodes["node-0"].reachable
        assert engine.stop(ATTEMPT, key="k", timeout_s=60).failed == {"node-0": "timeout"}
        assert engine.checkpoints(ATTEMPT, timeout_s=60) == ()
        assert engine.dump_stacks(ATTEMPT, timeout_s=60) == {}
    finally:
        engine.close()


def test_a_closed_engine_says_so() -> None:
    engine = engine_at("http://127.0.0.1:1")
    engine.close()
    with pytest.raises(EngineError, match="the engine is closed"):
        engine.snapshot(timeout_s=1)


def test_a_ca_file_that_is_none_names_the_mend(tmp_path: Path) -> None:
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    for path in (bad, tmp_path / "absent.pem"):
        with pytest.raises(ConfigError, match=r"cannot use CA file .*; point service.agent_ca_file at a PEM"):
            AgentsEngine(Topology.of([]), "token", path)
