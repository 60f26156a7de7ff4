"""Exit codes of workers and their reasons."""

from __future__ import annotations

import pytest

from everstep.core.exits import WorkerExit, exit_reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0, "success"),
        (1, "exception"),
        (2, "exception"),
        (73, "out_of_memory"),
        (74, "disk_full"),
        (75, "checkpoint"),
        (76, "fenced"),
        (77, "nonfinite"),
        (78, "peer_lost"),
        (-9, "signal"),
        (-15, "signal"),
        (137, "exception"),
    ],
)
def test_each_code_has_one_reason(code: int, reason: str) -> None:
    assert exit_reason(code) == reason


def test_our_own_codes_stay_clear_of_the_shells() -> None:
    own = {int(code) for code in WorkerExit} - {0, 1, 2}
    assert all(64 <= code < 126 for code in own)
