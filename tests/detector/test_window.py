from __future__ import annotations

import numpy as np
import pytest

from everstep.core.events import Entity, EntityKind
from everstep.detector.window import Scores, Window

RANKS = tuple(Entity(kind=EntityKind.RANK, name=f"demo/{rank}") for rank in range(2))


def test_any_real_dtype_becomes_float64() -> None:
    window = Window(metric="m", entities=RANKS, times=np.array([1, 2]), values=np.array([[1, 2], [3, 4]], np.float32))
    assert window.values.dtype == window.times.dtype == np.float64


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="do not fit 2 series"):
        Window(metric="m", entities=RANKS, times=np.zeros(3), values=np.zeros((2, 2)))


def test_newest_keeps_the_last_ticks() -> None:
    window = Window(metric="m", entities=RANKS, times=np.arange(3.0), values=np.arange(6.0).reshape(2, 3))
    assert window.newest(2).times.tolist() == [1.0, 2.0]
    assert window.newest(9).values.tolist() == window.values.tolist()


def test_flagged_is_ordered_and_ignores_nan() -> None:
    entities = tuple(Entity(kind=EntityKind.RANK, name=str(index)) for index in range(4))
    scores = Scores(entities=entities, values=np.array([1.0, np.nan, 2.5, 0.9]), onsets=np.full(4, np.nan))
    assert scores.flagged() == (2, 0)
    assert Scores.none(entities).flagged() == ()
