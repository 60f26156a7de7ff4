"""The reference pages are fresh and name every row of the tables."""

from pathlib import Path

import pytest

from everstep.core.faults import VERDICTS, XID_POLICY
from everstep.core.metrics import METRICS
from everstep.core.reference import main, pages, stale


def test_pages_are_fresh() -> None:
    assert stale() == (), "run python -m everstep.core.reference --write"


def test_every_row_is_there() -> None:
    metrics, faults = pages()["metrics.md"], pages()["faults.md"]
    assert all(f"`{metric.name}`" in metrics for metric in METRICS)
    assert all(f"### {fault.id} {fault.name}\n" in faults for fault in VERDICTS)
    assert all(f"| {xid} |" in faults for xid in XID_POLICY)


def test_gates_are_in_words() -> None:
    text = pages()["metrics.md"]
    assert "5 to 2000; at most 1.5 x `everstep_gpu_power_limit_watts`" in text
    assert "-1000 to 1e+06; NaN and infinity pass" in text
    assert "now -2.592e+06 s to now +5 s" in text


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--output", str(tmp_path)]) == 1
    assert "metrics.md" in capsys.readouterr().err
    assert main(["--write", "--output", str(tmp_path)]) == 0
    assert main(["--check", "--output", str(tmp_path)]) == 0
