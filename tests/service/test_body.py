"""A request's body: whole, bounded in size and in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from everstep.core.errors import WireError
from everstep.service.body import read_body


def _request(*chunks: bytes, ends: bool = True) -> Request:
    waiting = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if ends:
        waiting.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)


def test_the_chunks_come_together_up_to_the_bound() -> None:
    assert asyncio.run(read_body(_request(b"ab", b"cd"), most=4)) == b"abcd"
    assert asyncio.run(read_body(_request(b"ab", b"cde"), most=4)) is None


def test_a_body_that_trickles_is_given_up() -> None:
    with pytest.raises(WireError, match="did not arrive within 0.05 s"):
        asyncio.run(read_body(_request(b"ab", ends=False), most=4, timeout_s=0.05))
