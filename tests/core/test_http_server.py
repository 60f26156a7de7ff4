"""Connections that never say what they want are closed; those that do are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from everstep.core import http_server
from everstep.core.http_server import PromptProtocol

REQUEST = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"


async def _slow(request: Request) -> PlainTextResponse:
    del request
    await asyncio.sleep(0.5)
    return PlainTextResponse("done")


def _with_server(talk: Callable[[int], object]) -> None:
    async def serve() -> None:
        app = Starlette(routes=[Route("/slow", _slow)])
        server = uvicorn.Server(
            uvicorn.Config(app, port=0, http=PromptProtocol, lifespan="off", log_config=None, timeout_keep_alive=60)
        )
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            await talk(port)  # type: ignore[misc]
        finally:
            server.should_exit = True
            await serving

    asyncio.run(serve())


@pytest.mark.parametrize("head", [b"", b"POST /slow HTTP/1.1\r\nHost: x\r\n", REQUEST + b"GET /slow HT"])
def test_a_connection_that_does_not_finish_its_head_is_closed(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.2)

    async def talk(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        async with asyncio.timeout(10):
            answer = await reader.read()
        assert (b"done" in answer) == head.startswith(REQUEST)
        writer.close()

    _with_server(talk)


def test_an_answer_may_take_its_time_and_the_connection_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.3)

    async def talk(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(REQUEST)
            async with asyncio.timeout(10):
                assert (await reader.readuntil(b"done")).startswith(b"HTTP/1.1 200")
        writer.close()

    _with_server(talk)
