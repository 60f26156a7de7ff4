from __future__ import annotations

import json
from pathlib import Path

import pytest

from everstep.core.errors import EverstepError
from everstep.trainer.checkpoint.fence import Fence, FencedError, Lineage, read_fence


def test_the_fence_rises_and_refuses_older_attempts(tmp_path: Path) -> None:
    old, new = Fence(tmp_path, 1), Fence(tmp_path, 2)
    old.start()
    old.check()
    new.start()
    assert read_fence(tmp_path).attempt == 2
    for verb in (old.check, old.start, lambda: old.resumed(3)):
        with pytest.raises(FencedError, match="attempt 1 is fenced off by attempt 2"):
            verb()
    new.check()


def test_where_each_attempt_resumed_is_remembered(tmp_path: Path) -> None:
    Fence(tmp_path, 1).start()
    Fence(tmp_path, 1).resumed(0)
    Fence(tmp_path, 2).start()
    Fence(tmp_path, 2).resumed(40)
    lineage = Fence(tmp_path, 3).read()
    assert lineage == Lineage(attempt=2, resumed={1: 0, 2: 40})
    assert [lineage.gave_up(attempt=1, step=step) for step in (40, 41)] == [False, True]
    assert not lineage.gave_up(attempt=2, step=41)
    assert json.loads((tmp_path / "fence.json").read_text())["attempt"] == 2


def test_no_fence_is_attempt_zero_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    assert read_fence(tmp_path) == Lineage()
    Fence(tmp_path, 1).check()
    (tmp_path / "fence.json").write_text("{")
    with pytest.raises(EverstepError, match="not a readable fence; delete it"):
        Fence(tmp_path, 1).check()
