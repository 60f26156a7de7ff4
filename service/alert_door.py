"""`POST /api/v1/alerts`: Alertmanager's webhook, guarded by the token because it can start a recovery."""

from __future__ import annotations

import structlog
from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from everstep.core.errors import WireError
from everstep.service.access import Access, refusal
from everstep.service.alert_desk import AlertDesk, Received
from everstep.service.body import read_body
from everstep.service.notices import Delivery, parse
from everstep.service.self_metrics import SelfMetrics

MAX_BYTES = 4 * 2**20


def alert_routes(desk: AlertDesk, access: Access, metrics: SelfMetrics) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["alerts"])

    def take(delivery: Delivery) -> dict[str, int]:
        counts: dict[str, int] = {}
        for notice in delivery.notices:
            outcome = desk.take(notice)
            metrics.alert_received(outcome.value)
            if outcome is Received.STORM:
                metrics.suppressed("storm")
            counts[outcome.value] = counts.get(outcome.value, 0) + 1
        if delivery.truncated:
            structlog.get_logger().warning("alerts_truncated", left_out=delivery.truncated)
        return counts

    @router.post("/alerts", summary="Alertmanager webhook, version 4")
    async def alerts(request: Request) -> Response:
        denied = access.check(request.headers)
        if denied is not None:
            return denied
        try:
            body = await read_body(request, most=MAX_BYTES)
            if body is None:
                return refusal(413, f"body is longer than {MAX_BYTES} bytes", "set max_alerts in the webhook")
            delivery = parse(body)
        except WireError as error:
            return refusal(400, error.problem, error.mend)
        return JSONResponse(await run_in_threadpool(take, delivery))

    return router
