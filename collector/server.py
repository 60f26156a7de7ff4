"""uvicorn, started and stopped from inside: the socket is bound first, so that every problem is one clear line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Generator
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from everstep.core.errors import ConfigError
from everstep.core.http_server import PromptProtocol
from everstep.core.settings import Endpoint

CLOSE_TIMEOUT_S = 2
TICK_S = 1.0


class AgentServer(uvicorn.Server):
    """Signals belong to the agent, which ends workers before it goes; uvicorn would end the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._asked = asyncio.Event()

    async def main_loop(self) -> None:
        """uvicorn looks ten times a second whether it should stop; here who asks wakes it."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._asked.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        del sig, frame

    def ask_to_stop(self) -> None:
        """In the event loop."""
        self.should_exit = True
        self._asked.set()


def bind(endpoint: Endpoint) -> socket.socket:
    """A listening socket. Raises `ConfigError` for a port in use, a forbidden port or an unknown address."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    try:
        return socket.create_server((endpoint.host, endpoint.port), family=family, backlog=128)
    except OSError as error:
        # create_server adds the address to strerror; the errno alone says it once
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(
            f"cannot listen on {endpoint.host}:{endpoint.port} ({reason})",
            mend="stop what uses the port or set agent.listen.port (0 picks a free one)",
        ) from error


def server_of(app: Starlette, endpoint: Endpoint) -> AgentServer:
    """Raises `ConfigError` when the TLS files cannot be used."""
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=PromptProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
        ssl_certfile=endpoint.tls_certificate,
        ssl_keyfile=endpoint.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot use TLS files {endpoint.tls_certificate} and {endpoint.tls_key} ({error})",
            mend="give a PEM certificate and its key, both readable",
        ) from error
    return AgentServer(config)
