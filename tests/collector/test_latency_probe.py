from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out

from fake_sysfs import values

from everstep.collector import latency_probe
from everstep.collector.echo import Arrival, EchoResponder, answer, question
from everstep.collector.latency_probe import METRIC, LatencyProbe, Peer, without_self
from everstep.core.metrics import METRIC_BY_NAME


@pytest.fixture
def responder() -> Iterator[EchoResponder]:
    one = EchoResponder("127.0.0.1", 0)
    one.start()
    yield one
    one.close()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes everything and answers nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        yield udp.getsockname()[1]


def _peer(port: int, rack: str = "r1", rail: str = "0", address: str = "127.0.0.1") -> Peer:
    return Peer(address=address, port=port, rack=rack, rail=rail)


def test_round_trips_by_rack_and_rail(responder: EchoResponder) -> None:
    probe = LatencyProbe([_peer(responder.port), _peer(responder.port, "r2", "3")], "node-0", 16)
    list(probe.collect())
    found = values(probe.collect())
    for pair in (("r1", "0"), ("r2", "3")):
        assert found[(f"{METRIC}_count", *pair)] == 2
        assert found[(f"{METRIC}_bucket", *pair, "1.0")] == 2
        assert found[(f"{METRIC}_sum", *pair)] > 0


def test_labels_are_those_of_the_metric_table(responder: EchoResponder) -> None:
    for one in LatencyProbe([_peer(responder.port)], "node-0", 16).collect():
        names = tuple(name for name, _ in one.labels if name != "le")
        assert names == METRIC_BY_NAME[one.metric].label_names


def test_a_lost_probe_counts_in_inf_and_disturbs_no_other(
    responder: EchoResponder, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency_probe, "LOST_AFTER_S", 0.3)
    peers = [
        _peer(silent, "silent"),
        _peer(9, "closed"),
        _peer(responder.port, "alive"),
        _peer(9, "no route", address="255.255.255.255"),
    ]
    found = values(LatencyProbe(peers, "node-0", 16).collect())
    for rack in ("silent", "closed", "no route"):
        assert found[(f"{METRIC}_bucket", rack, "0", "1.0")] == 0
        assert found[(f"{METRIC}_bucket", rack, "0", "+Inf")] == 1
    assert found[(f"{METRIC}_bucket", "alive", "0", "1.0")] == 1


def test_the_time_spent_at_the_peer_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = _peer(1)
    sent_ns = 1_000_000_000
    reply = answer(question(b"12345678"), 4_000_000)
    assert reply is not None
    arrival = Arrival(data=reply, sender=None, at_ns=sent_ns + 5_000_000, route=[])
    monkeypatch.setattr(latency_probe, "receive", lambda _: arrival)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        waiting = {b"12345678": (peer, sent_ns)}
        assert list(latency_probe._answers(udp, waiting)) == [(("r1", "0"), 0.001)]
    assert waiting == {}


def test_answers_with_a_foreign_nonce_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency_probe, "LOST_AFTER_S", 0.3)
    monkeypatch.setattr("everstep.collector.echo.answer", lambda data, _: answer(data[:4] + b"x" * 16, 0))
    liar = EchoResponder("127.0.0.1", 0)
    liar.start()
    try:
        found = values(LatencyProbe([_peer(liar.port)], "node-0", 16).collect())
    finally:
        liar.close()
    assert found[(f"{METRIC}_bucket", "r1", "0", "1.0")] == 0
    assert found[(f"{METRIC}_bucket", "r1", "0", "+Inf")] == 1


def test_a_node_keeps_to_its_pairs_and_every_rail_has_some() -> None:
    peers = [_peer(9, f"r{rack}", str(rail)) for rack in range(128) for rail in range(8)]
    asked = {node: set(LatencyProbe(peers, node, 16)._peers) for node in ("a", "b", "a")}
    assert all(len(pairs) == 16 for pairs in asked.values())
    assert {rail for _, rail in asked["a"]} == {str(rail) for rail in range(8)}
    assert asked["a"] != asked["b"]
    assert asked["a"] == set(LatencyProbe(peers, "a", 16)._peers)
    every = {pair for node in range(1024) for pair in LatencyProbe(peers, f"node-{node}", 16)._peers}
    assert len(every) == 128 * 8


def test_a_node_does_not_ask_itself() -> None:
    peers = [_peer(9810), _peer(9811), _peer(9810, address="192.0.2.1"), _peer(9810, address="::1")]
    left = {(peer.address, peer.port) for peer in without_self(peers, 9810)}
    assert {("127.0.0.1", 9811), ("192.0.2.1", 9810)} <= left
    assert ("127.0.0.1", 9810) not in left
