"""A request's body, bounded while it arrives."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from everstep.core.errors import WireError

TIMEOUT_S = 30.0
"""For the whole body: a sender that trickles holds a connection no longer than this."""


async def read_body(request: Request, *, most: int, timeout_s: float = TIMEOUT_S) -> bytes | None:
    """The body, or None as soon as it grows past `most` bytes. Raises `WireError` when it does not arrive whole."""
    declared = request.headers.get("content-length", "0")
    if declared.isascii() and declared.isdigit() and int(declared[:18]) > most:
        return None
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    return None
    except TimeoutError as error:
        raise WireError(f"the body did not arrive within {timeout_s:g} s", mend="send smaller batches") from error
    except ClientDisconnect as error:
        raise WireError("the sender went away", mend="send the whole body") from error
    return bytes(body)
