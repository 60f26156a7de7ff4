"""What service and agent ask of their HTTP server: no connection may wait for ever to say what it wants.

uvicorn bounds the time between two requests, but not the time that the head of a request takes. Peers that open
connections and trickle would use up the descriptors of a process, and then nobody else could connect.
"""

from __future__ import annotations

import asyncio
import resource

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_TIMEOUT_S = 10.0


class PromptProtocol(H11Protocol):
    """Closes a connection that brings no whole head for one to two times `HEAD_TIMEOUT_S`."""

    _look: asyncio.TimerHandle | None = None
    _last_cycle: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._look = self.loop.call_later(HEAD_TIMEOUT_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, whatever uvicorn declares
        if cycle is self._last_cycle and (cycle is None or cycle.response_complete):
            self.transport.close()
            return
        self._last_cycle = cycle
        self._look_later()


def raise_descriptor_limit() -> None:
    """As many descriptors as this process may have: each agent and each browser holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
