"""`everstep train`: the words reach the launcher and its exit code comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.cli.main import main
from everstep.trainer import launch


@pytest.mark.parametrize("code", [0, 75])
def test_the_exit_code_is_torchruns(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Path, int]] = []

    def run(config: Path, processes: int) -> int:
        seen.append((config, processes))
        return code

    monkeypatch.setattr(launch, "run", run)
    assert main(["train", "-c", "run.yaml", "-n", "2"]) == code
    assert seen == [(Path("run.yaml"), 2)]


def test_a_run_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", str(tmp_path / "none.yaml")]) == 2
    line = capsys.readouterr().err
    assert line.startswith("everstep: ")
    assert "none.yaml" in line
    assert len(line.splitlines()) == 1
