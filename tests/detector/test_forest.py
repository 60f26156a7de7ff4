from __future__ import annotations

import numpy as np

from everstep.core.events import Entity, EntityKind
from everstep.detector.forest import ForestVote
from everstep.detector.window import FloatArray, Window


def window(values: FloatArray) -> Window:
    entities = tuple(Entity(kind=EntityKind.RANK, name=f"demo/{rank}") for rank in range(len(values)))
    return Window(metric="m", entities=entities, times=np.arange(values.shape[1], dtype=float), values=values)


def test_no_verdict_before_the_first_fit() -> None:
    forest = ForestVote(window=10)
    forest.learn(window(np.zeros((3, 10))))
    forest.refit()
    assert np.isnan(forest.score(window(np.zeros((3, 10)))).values).all()
    assert not forest.due


def test_due_after_enough_new_rows() -> None:
    forest = ForestVote(window=10, fewest_rows=12)
    rng = np.random.default_rng(2)
    for _ in range(4):
        forest.learn(window(rng.normal(0, 0.05, (3, 10))))
    assert forest.due
    forest.refit()
    assert not forest.due


def test_votes_for_the_odd_one() -> None:
    forest = ForestVote(window=10)
    rng = np.random.default_rng(3)
    for _ in range(60):
        forest.learn(window(rng.normal(0, 0.05, (3, 10))))
    forest.refit()
    odd = rng.normal(0, 0.05, (3, 10))
    odd[1] += 0.4
    assert forest.score(window(odd)).flagged() == (1,)
