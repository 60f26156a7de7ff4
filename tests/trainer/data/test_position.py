from __future__ import annotations

import json

import numpy as np

from everstep.trainer.data import Batch, Position
from everstep.trainer.state import TrainState


def test_passing_a_batch_moves_everything_but_the_shuffle() -> None:
    batch = Batch(index=7, epoch=2, windows=np.array([3, 1]))
    moved = Position(next_batch=5, sample_hash=9, skipped=(1,), shuffle=77).passed(batch, [5, 6])
    assert moved == Position(next_batch=8, sample_hash=batch.chain(9), skipped=(1, 5, 6), epoch=2, shuffle=77)


def test_a_position_survives_the_checkpoint_and_one_of_an_older_version_is_read() -> None:
    state = TrainState(step=3, position=Position(next_batch=4, sample_hash=5, skipped=(2,), epoch=1, shuffle=6))
    stored = json.loads(json.dumps(state.as_json()))
    assert TrainState.from_json(stored) == state
    del stored["position"]["epoch"], stored["position"]["shuffle"]
    assert TrainState.from_json(stored).position == Position(next_batch=4, sample_hash=5, skipped=(2,))
