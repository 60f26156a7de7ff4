"""What happens, to whoever listens: published from any thread, read as server-sent events on the server's loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

QUEUED = 256
HEARTBEAT_S = 15.0
MAX_LISTENERS = 256


class EventBus:
    """A listener that does not keep up loses its oldest events, never the publisher's time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.Queue[str | None], asyncio.AbstractEventLoop] = {}
        self._closed = False

    @property
    def num_listeners(self) -> int:
        return len(self._listeners)

    def publish(self, kind: str, **fields: Any) -> None:
        """From any thread; `fields` must be plain JSON values."""
        with self._lock:
            if not self._listeners:
                return
            self._send(json.dumps({"type": kind, **fields}, default=str))

    def close(self) -> None:
        """End every stream; the server can then stop."""
        with self._lock:
            self._closed = True
            self._send(None)

    async def listen(self) -> AsyncIterator[str]:
        """JSON texts; an empty one now and then so that a dead connection is noticed."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(QUEUED)
        with self._lock:
            if self._closed or len(self._listeners) >= MAX_LISTENERS:
                return
            self._listeners[queue] = asyncio.get_running_loop()
        try:
            while True:
                try:
                    text = await asyncio.wait_for(queue.get(), HEARTBEAT_S)
                except TimeoutError:
                    text = ""
                if text is None:
                    return
                yield text
        finally:
            with self._lock:
                del self._listeners[queue]

    def _send(self, text: str | None) -> None:
        for queue, loop in self._listeners.items():
            with suppress(RuntimeError):  # that loop has just been closed; its listener is gone with it
                loop.call_soon_threadsafe(_put, queue, text)


def _put(queue: asyncio.Queue[str | None], text: str | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(text)
