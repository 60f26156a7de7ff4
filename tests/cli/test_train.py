"""`everstep train`: the words reach the launcher and its exit code comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.cli import train
from everstep.cli.machine import Check
from everstep.cli.main import main
from everstep.trainer import launch


@pytest.mark.parametrize("code", [0, 75])
def test_the_exit_code_is_torchruns(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Path, int]] = []

    def run(config: Path, processes: int) -> int:
        seen.append((config, processes))
        return code

    monkeypatch.setattr(launch, "run", run)
    working = Check(name="torch", ok=True, found="2.13.0", mend="")
    monkeypatch.setattr(train, "check_torch", lambda: working)
    assert main(["train", "-c", "run.yaml", "-n", "2"]) == code
    assert seen == [(Path("run.yaml"), 2)]


def test_a_torch_that_cannot_be_imported_is_named_after_the_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Check(name="torch", ok=False, found="cannot be imported (ImportError: libcudart.so.12)", mend="reinstall")
    monkeypatch.setattr(launch, "run", lambda *_: 1)
    monkeypatch.setattr(train, "check_torch", lambda: broken)
    assert main(["train", "-c", "run.yaml"]) == 2
    line = "everstep: torch cannot be imported (ImportError: libcudart.so.12); reinstall\n"
    assert capsys.readouterr().err == line


def test_a_run_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", str(tmp_path / "none.yaml")]) == 2
    line = capsys.readouterr().err
    assert line.startswith("everstep: ")
    assert "none.yaml" in line
    assert len(line.splitlines()) == 1
