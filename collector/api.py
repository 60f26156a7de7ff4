"""The agent's HTTP API: health and metrics for everyone, verbs for who holds the token."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from everstep.collector.checkpoints import checkpoint_copies
from everstep.collector.exposition import Exposition
from everstep.collector.orders import (
    CordonOrder,
    SignalOrder,
    StacksOrder,
    StartOrder,
    StopOrder,
    StoreOrder,
    UncordonOrder,
)
from everstep.collector.paths import NodePaths
from everstep.collector.refusal import RefusedError
from everstep.collector.stacks import dump_stacks
from everstep.collector.supervisor import Supervisor

MAX_BODY_BYTES = 64 * 1024
CHECKPOINTS_TIMEOUT_S = 30.0
OrderT = TypeVar("OrderT")
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """`token` None switches the verbs off."""

    node: str
    token: str | None
    supervisor: Supervisor
    paths: NodePaths
    exposition: Exposition


class AgentApi:
    """One method a route; `app` is what a server runs."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._supervisor = context.supervisor
        self.app = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/metrics", self._metrics),
                Route("/v1/status", self._guarded(self._status)),
                Route("/v1/checkpoints", self._guarded(self._checkpoints)),
                *(
                    Route(f"/v1/{verb}", self._guarded(handler), methods=["POST"])
                    for verb, handler in self._verbs().items()
                ),
            ],
            exception_handlers={RefusedError: _refused, HTTPException: _not_served, Exception: _failed},
        )

    def _verbs(self) -> dict[str, Handler]:
        return {
            "store/start": self._store_start,
            "workers/start": self._workers_start,
            "workers/signal": self._workers_signal,
            "workers/stop": self._workers_stop,
            "workers/stacks": self._workers_stacks,
            "cordon": self._cordon,
            "uncordon": self._uncordon,
        }

    def _guarded(self, handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            self._check_token(request)
            return await handler(request)

        return checked

    def _check_token(self, request: Request) -> None:
        token = self._context.token
        if token is None:
            raise RefusedError(
                "this agent has no token, so its verbs are off", mend="set agent.listen.token_file", status=403
            )
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise RefusedError("no bearer token", mend="send Authorization: Bearer <token>", status=401)
        if not hmac.compare_digest(given.strip().encode(), token.encode()):
            raise RefusedError("wrong bearer token", mend="use the one in this agent's listen.token_file", status=403)

    async def _health(self, request: Request) -> Response:
        del request
        return JSONResponse({"ok": True, "node": self._context.node})

    async def _metrics(self, request: Request) -> Response:
        body, content_type = self._context.exposition.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    async def _status(self, request: Request) -> Response:
        del request
        return JSONResponse(self._supervisor.status())

    async def _checkpoints(self, request: Request) -> Response:
        job = request.query_params.get("job", "")
        command = self._supervisor.command(job)
        look = asyncio.to_thread(
            checkpoint_copies, self._context.node, self._context.paths.memory(job), command.checkpoint_dir
        )
        try:
            async with asyncio.timeout(CHECKPOINTS_TIMEOUT_S):
                copies = await look
        except TimeoutError:
            raise RefusedError(
                f"checkpoints of {job} could not be read within {CHECKPOINTS_TIMEOUT_S:g} s",
                mend="check the storage below checkpoint_dir",
                status=504,
            ) from None
        return JSONResponse({"copies": [asdict(copy) for copy in copies]})

    async def _store_start(self, request: Request) -> Response:
        host, port = await self._supervisor.open_store(await _order(request, StoreOrder))
        return JSONResponse({"host": host, "port": port})

    async def _workers_start(self, request: Request) -> Response:
        return JSONResponse({"pid": await self._supervisor.start_worker(await _order(request, StartOrder))})

    async def _workers_signal(self, request: Request) -> Response:
        self._supervisor.signal(await _order(request, SignalOrder))
        return JSONResponse({})

    async def _workers_stop(self, request: Request) -> Response:
        await self._supervisor.stop(await _order(request, StopOrder))
        return JSONResponse({})

    async def _workers_stacks(self, request: Request) -> Response:
        order = await _order(request, StacksOrder)
        return JSONResponse({"stacks": await dump_stacks(self._supervisor.living(order.job))})

    async def _cordon(self, request: Request) -> Response:
        self._supervisor.cordon((await _order(request, CordonOrder)).reason)
        return JSONResponse({})

    async def _uncordon(self, request: Request) -> Response:
        await _order(request, UncordonOrder)
        self._supervisor.uncordon()
        return JSONResponse({})


async def _order(request: Request, kind: type[OrderT]) -> OrderT:
    """The body as an order. Raises `RefusedError` 413 or 422."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise RefusedError(
                f"body is larger than {MAX_BODY_BYTES} bytes", mend="send one order a request", status=413
            )
    try:
        return TypeAdapter(kind).validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise RefusedError(f"{where}: {first['msg']}", mend="send exactly the keys of this order", status=422) from None


async def _refused(request: Request, error: Exception) -> Response:
    del request
    status = error.status if isinstance(error, RefusedError) else 500
    return JSONResponse({"error": str(error)}, status_code=status)


async def _not_served(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    problem = "method not allowed" if status == 405 else f"no such path {request.url.path}"
    return JSONResponse({"error": f"{problem}; see docs/architecture.md"}, status_code=status)


async def _failed(request: Request, error: Exception) -> Response:
    structlog.get_logger().error("request_failed", path=request.url.path, exc_info=error)
    return JSONResponse({"error": "the agent failed; see its log"}, status_code=500)
