from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from everstep.collector.clock_offset import STA_NANO, STA_UNSYNC, ClockOffset, Timex, read_timex
from everstep.core.errors import EverstepError


def _timex(offset: int, status: int) -> Timex:
    return Timex(offset=offset, status=status)


@pytest.mark.parametrize(
    ("offset", "status", "seconds"),
    [(1_500_000, STA_NANO, 0.0015), (-2_000, 0x0001, -0.002), (0, STA_NANO, 0.0)],
)
def test_the_unit_follows_the_status(offset: int, status: int, seconds: float) -> None:
    (sample,) = ClockOffset(lambda: _timex(offset, status)).collect()
    assert sample.metric == "everstep_node_clock_offset_seconds"
    assert sample.value == pytest.approx(seconds, abs=1e-12)


def test_a_clock_that_nobody_keeps_claims_nothing() -> None:
    assert list(ClockOffset(lambda: _timex(0, STA_UNSYNC | STA_NANO)).collect()) == []


def test_the_kernel_fills_the_structure_or_says_why_not() -> None:
    with contextlib.suppress(EverstepError):  # a sandbox may refuse
        assert read_timex().maxerror > 0


def test_a_refusal_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: SimpleNamespace(adjtimex=lambda _: -1))
    with pytest.raises(EverstepError, match=r"^adjtimex: .*; let the container use adjtimex"):
        read_timex()
