from __future__ import annotations

import asyncio
import json

from everstep.service.events import QUEUED, EventBus


async def _collect(bus: EventBus) -> list[str]:
    return [json.loads(text)["type"] async for text in bus.listen()]


async def _turn() -> None:
    """Let the tasks that are ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_listeners_hear_what_is_published_until_it_closes() -> None:
    async def run() -> list[str]:
        bus = EventBus()
        bus.publish("nobody")
        task = asyncio.create_task(_collect(bus))
        await _turn()
        assert bus.num_listeners == 1
        await asyncio.to_thread(bus.publish, "step", step=1)
        bus.publish("incident")
        bus.close()
        kinds = await asyncio.wait_for(task, 5)
        assert bus.num_listeners == 0
        return kinds

    assert asyncio.run(run()) == ["step", "incident"]


def test_a_slow_listener_loses_its_oldest_events() -> None:
    async def run() -> list[str]:
        bus = EventBus()
        stream = bus.listen()
        first = asyncio.create_task(anext(stream))
        await _turn()
        assert bus.num_listeners == 1
        for number in range(QUEUED + 50):
            bus.publish(str(number))
        await asyncio.sleep(0)
        await first
        bus.close()
        return [json.loads(text)["type"] async for text in stream]

    kinds = asyncio.run(run())
    assert len(kinds) < QUEUED
    assert kinds[-1] == str(QUEUED + 49)


def test_a_closed_bus_takes_no_listener() -> None:
    async def run() -> list[str]:
        bus = EventBus()
        bus.close()
        return [text async for text in bus.listen()]

    assert asyncio.run(run()) == []
