"""Time as a value."""

from __future__ import annotations

import time

from everstep.core.clock import ManualClock, SystemClock


def test_the_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(100.0)
    assert clock.now() == clock.now() == 100.0
    clock.advance(2.5)
    assert clock.now() == 102.5


def test_the_system_clock_is_the_machines() -> None:
    before = time.time()
    assert before <= SystemClock().now() <= time.time()
