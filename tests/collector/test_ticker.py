"""A function is called again and again, until it fails or nobody waits any more."""

from __future__ import annotations

import asyncio

import pytest

from everstep.collector.ticker import tick_every


def test_it_is_called_until_it_fails_and_the_failure_comes_out() -> None:
    calls: list[int] = []

    def act() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        asyncio.run(tick_every(0.001, act))
    assert calls == [0, 1, 2]


def test_nothing_is_called_after_a_cancel() -> None:
    calls: list[float] = []

    async def watched() -> int:
        task = asyncio.create_task(tick_every(0.001, lambda: calls.append(1.0)))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        seen = len(calls)
        assert seen > 0
        await asyncio.sleep(0.02)
        return len(calls) - seen

    assert asyncio.run(watched()) == 0
