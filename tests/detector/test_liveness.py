from __future__ import annotations

from everstep.core.events import Direction
from everstep.detector.liveness import silent_nodes, unreachable


def test_silence_counts_from_the_last_push_or_from_the_start() -> None:
    heard = {"node-0": 99.0, "node-1": 96.0}
    nodes = ("node-0", "node-1", "node-2")
    assert silent_nodes(heard, nodes, since=0.0, deadline_s=2.5, now=100.0) == ("node-1", "node-2")
    assert silent_nodes(heard, nodes, since=99.0, deadline_s=2.5, now=100.0) == ()


def test_unreachable_node() -> None:
    gone = unreachable("node-1", probe="refused", last_push=99.5, deadline_s=2.5, now=100.0)
    assert gone.direction is Direction.ABSENT
    assert gone.score >= 1
    assert gone.evidence == {"probe": "refused", "silent_s": 0.5}
    assert (gone.onset_earliest, gone.onset_latest) == (99.5, 100.0)
