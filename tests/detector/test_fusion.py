from __future__ import annotations

import numpy as np

from everstep.core.events import Anomaly
from everstep.core.settings import DetectorSettings
from everstep.detector.fusion import SlowRanks

NODES = {0: "node-0", 1: "node-1", 2: "node-2"}


def feed(slow: SlowRanks, steps: range, *, factor: float = 1.0, seed: int = 1) -> list[Anomaly]:
    rng = np.random.default_rng(seed)
    found: list[Anomaly] = []
    for step in steps:
        row = 0.1 * np.exp(rng.normal(0, 0.05, 3))
        row[1] *= factor
        found += slow.step(step, float(step), row.tolist())
    return found


def test_peers_gate_and_votes_travel_along() -> None:
    slow = SlowRanks("demo", DetectorSettings())
    slow.begin(NODES)
    assert feed(slow, range(1, 61)) == []
    slow.forest.refit()
    found = feed(slow, range(61, 75), factor=1.5, seed=2)
    assert {anomaly.entity.name for anomaly in found} == {"demo/1"}
    first = found[0]
    assert first.detector == "peers"
    assert first.evidence["node"] == "node-1"
    assert first.evidence["votes"] == {"baseline": True, "forest": True}
    assert 1.35 < first.evidence["ratio"] < 1.65
    assert first.onset_earliest <= 62
    assert first.onset_latest <= 63


def test_a_new_attempt_has_a_fresh_window_and_the_old_baselines() -> None:
    slow = SlowRanks("demo", DetectorSettings())
    slow.begin(NODES)
    feed(slow, range(1, 61))
    found = feed(slow, range(61, 75), factor=1.5)
    assert found
    slow.begin({**NODES, 1: "node-3"})
    assert slow.steps >= 50
    assert feed(slow, range(60, 110), seed=3) == []


def test_state_survives_a_restart() -> None:
    slow = SlowRanks("demo", DetectorSettings())
    slow.begin(NODES)
    feed(slow, range(1, 61))
    other = SlowRanks("demo", DetectorSettings())
    other.restore(slow.state(), 3)
    other.begin(NODES)
    assert other.steps == slow.steps
    assert feed(other, range(61, 63)) == []
    assert feed(other, range(63, 75), factor=1.6, seed=4)


def test_missing_samples_do_not_stop_it() -> None:
    slow = SlowRanks("demo", DetectorSettings())
    slow.begin(NODES)
    feed(slow, range(1, 41))
    assert slow.step(41, 41.0, [0.1, float("nan"), 0.1]) == []
    assert slow.step(42, 42.0, [0.1]) == []
