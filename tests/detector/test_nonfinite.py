from __future__ import annotations

from everstep.detector.nonfinite import NonfiniteCount, is_located, judge_nonfinite


def count(rank: int, steps: int, *, bad_input: bool = False) -> NonfiniteCount:
    return NonfiniteCount(rank=rank, steps=steps, batch=57, input_nonfinite=bad_input, step=20, at=5.0)


def test_every_hit_rank_names_all() -> None:
    found = judge_nonfinite("demo", [count(0, 1), count(1, 1, bad_input=True), count(2, 0)])
    assert [anomaly.entity.name for anomaly in found] == ["demo/0", "demo/1"]
    assert all(anomaly.evidence["ranks"] == [0, 1] for anomaly in found)
    assert [is_located(anomaly) for anomaly in found] == [False, True]
    assert found[1].evidence == {"batch": 57, "input_nonfinite": True, "step": 20, "ranks": [0, 1]}


def test_nothing_to_tell() -> None:
    assert judge_nonfinite("demo", [count(0, 0)]) == []
