"""The fence: attempts only grow, over a restart, and also where the number cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from everstep.collector.fence import Fence
from everstep.collector.refusal import RefusedError


def test_the_newest_attempt_is_remembered_over_a_restart(tmp_path: Path) -> None:
    assert Fence(tmp_path.joinpath).advance("demo", 3)
    again = Fence(tmp_path.joinpath)
    again.recall("demo")
    assert again.highest("demo") == 3
    assert not again.advance("demo", 3)
    with pytest.raises(RefusedError, match="attempt 2 of job demo is older than attempt 3"):
        again.advance("demo", 2)


def test_a_full_tmpfs_does_not_hide_that_an_attempt_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    fence = Fence(tmp_path.joinpath)
    with capture_logs() as logs:
        assert fence.advance("demo", 1)
        assert fence.advance("demo", 2)  # so that the supervisor ends attempt 1 before it starts attempt 2
    assert fence.highest("demo") == 2
    assert [entry["event"] for entry in logs] == ["fence_not_kept", "fence_not_kept"]
    assert str(tmp_path) in logs[0]["mend"]
    assert list(tmp_path.iterdir()) == []
