"""The contract that every bench keeps, and the demo bench's table from hand-written runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everstep.bench import demo, harness
from everstep.bench.harness import BenchResult, Label
from everstep.cli.demo_run.scenario import DemoFault


def run(**changes: Any) -> dict[str, Any]:
    rank = {"kind": "rank", "name": "demo/1"}
    fields = {"fault": "kill_process", "seed": 1, "ok": True, "expected": rank, "culprit": rank, "mttd_s": 0.5}
    fields |= {"mttr_s": 3.0, "detect_steps": 0, "lost_steps": 0, "false_incidents": 0, "step_median_s": 0.2}
    return {**fields, **changes}


def test_the_last_line_is_the_object_of_the_design(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = BenchResult(bench="x", ok=False, label=Label.REAL, seed=3, measures={"a": 1}, goals={"a": 2})
    assert harness.finish(result, "# x\n", folder=tmp_path) == 1
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(printed) == ["bench", "ok", "label", "measures", "goals", "rivals", "commit", "seed"]
    assert printed["label"] == "real"
    assert (tmp_path / "x.md").read_text() == "# x\n"


def test_quick_and_full_exclude_each_other() -> None:
    with pytest.raises(SystemExit):
        harness.arguments("x", "y").parse_args(["--quick", "--full"])


def test_a_row_holds_median_and_worst_and_the_goals_missed() -> None:
    runs = [run(mttd_s=0.4), run(mttd_s=0.6), run(mttd_s=3.5, mttr_s=9.0)]
    row = demo.row(DemoFault.KILL_PROCESS, runs, [run(mttr_s=16.0)])
    assert row.num_right == 3
    assert row.missed == ("found, worst", "back, worst")
    page = demo.page([row], "command")
    assert "| kill_process | 3/3 | 0.60 / 3.50 |" in page
    assert "16.00 / 16.00 (n = 1)" in page


def test_the_bound_of_a_hang_grows_with_the_step_time() -> None:
    slow = run(fault="hang_process", mttd_s=6.0, mttr_s=9.0, step_median_s=2.5)
    assert demo.row(DemoFault.HANG_PROCESS, [slow], []).missed == ()
    fast = run(fault="hang_process", mttd_s=6.0, mttr_s=9.0, step_median_s=0.2)
    assert demo.row(DemoFault.HANG_PROCESS, [fast], []).missed == ("found, worst",)


def test_a_run_without_a_result_misses_every_goal_and_is_no_right_culprit() -> None:
    row = demo.row(DemoFault.NAN_LOSS, [demo._failed(DemoFault.NAN_LOSS, 1, "no output")], [])
    assert row.num_ok == row.num_right == 0
    assert set(row.missed) == {"steps until found", "back, worst", "outcome"}


def test_raw_results_of_another_commit_are_not_reused(tmp_path: Path) -> None:
    raw = tmp_path / "demo.jsonl"
    raw.write_text(json.dumps({"commit": "old"}) + "\n" + json.dumps({"commit": "new"}) + "\n")
    assert demo.read_raw(raw, "new") == [{"commit": "new"}]
    assert demo.read_raw(tmp_path / "absent", "new") == []
