from __future__ import annotations

import json
from pathlib import Path

import pytest

from everstep.trainer.chaos import Poison, Slowness


def test_poison_marks_one_ranks_slice_of_one_batch(tmp_path: Path) -> None:
    poison = Poison([tmp_path / "absent", tmp_path])
    assert not poison.marks(57, 1)
    (tmp_path / "poison.json").write_text(json.dumps({"batches": {"57": {"rank": 1}, "60": {}}}))
    assert [poison.marks(57, rank) for rank in range(3)] == [False, True, False]
    assert [poison.marks(60, rank) for rank in range(2)] == [True, True]
    assert not poison.marks(58, 1)


def test_a_poison_file_that_is_not_json_injects_nothing(tmp_path: Path) -> None:
    (tmp_path / "poison.json").write_text("{")
    assert not Poison([tmp_path]).marks(57, 1)


@pytest.mark.parametrize(
    ("text", "factor"), [('{"factor": 1.5}', 1.5), ('{"factor": 0.5}', 1.0), ('{"factor": "x"}', 1.0), ("[]", 1.0)]
)
def test_the_slow_file_sets_a_factor_of_at_least_one(tmp_path: Path, text: str, factor: float) -> None:
    (tmp_path / "chaos").mkdir()
    (tmp_path / "chaos" / "slow.json").write_text(text)
    assert Slowness(tmp_path).factor() == factor


def test_without_a_file_or_a_node_nothing_is_slow(tmp_path: Path) -> None:
    assert Slowness(None).factor() == 1.0
    slowness = Slowness(tmp_path)
    assert slowness.factor() == 1.0
    (tmp_path / "chaos").mkdir()
    path = tmp_path / "chaos" / "slow.json"
    path.write_text('{"factor": 2}')
    assert slowness.factor() == 2.0
    path.unlink()
    assert slowness.factor() == 1.0


def test_burning_goes_on_until_the_clock_has_moved() -> None:
    ticks = iter([10.0, 10.1, 10.2, 10.3, 10.4, 10.5])
    Slowness(None).burn(0.35, clock=lambda: next(ticks))
    assert next(ticks) == 10.5
