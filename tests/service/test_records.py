from __future__ import annotations

import json

from everstep.core.engine import Attempt, RankPlacement
from everstep.core.events import Entity, EntityKind
from everstep.service.records import attempt_from, dump, plain


def test_plain_is_strict_json() -> None:
    value = {"entity": Entity(kind=EntityKind.RANK, name="demo/1"), "loss": float("nan"), "ranks": (0, 1)}
    text = json.dumps(plain(value), allow_nan=False)
    assert json.loads(text) == {"entity": {"kind": "rank", "name": "demo/1"}, "loss": "nan", "ranks": [0, 1]}


def test_attempt_round_trip() -> None:
    attempt = Attempt(job="demo", number=1, placements=(RankPlacement(rank=0, node="node-0", local_rank=0),))
    assert attempt_from(dump(attempt)) == attempt
