"""The HTTP face: remote-write in, incidents, jobs, events and metrics out. OpenAPI at `/openapi.json`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.metadata import version

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from everstep.core.topology import Topology
from everstep.service.access import Access, refusal
from everstep.service.alert_desk import AlertDesk
from everstep.service.alert_door import alert_routes
from everstep.service.decisions import Approver, decision_routes
from everstep.service.discovery import discovery_routes
from everstep.service.events import EventBus
from everstep.service.goodput import Goodput
from everstep.service.incident_pages import IncidentReader, incident_routes
from everstep.service.ingest import Ingest
from everstep.service.job_pages import job_routes
from everstep.service.monitor import Monitor
from everstep.service.self_metrics import SelfMetrics
from everstep.service.window_store import WindowStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the routes answer from. `problem` gives why the service is not ready, `cluster` its name; empty: none."""

    topology: Topology
    windows: WindowStore
    monitor: Monitor
    incidents: IncidentReader
    controller: Approver
    ingest: Ingest
    alerts: AlertDesk
    access: Access
    bus: EventBus
    goodput: Goodput
    metrics: SelfMetrics
    problem: Callable[[], str]
    cluster: str = ""


def build_app(served: Served) -> FastAPI:
    app = FastAPI(
        title="Everstep",
        version=version("everstep"),
        description="Detection, root cause and recovery of distributed training.",
        docs_url=None,
        redoc_url=None,
    )
    app.add_api_route(
        "/api/v1/write",
        served.ingest.write,
        methods=["POST"],
        status_code=204,
        response_class=Response,
        summary="Prometheus remote-write 1.0",
    )
    app.include_router(incident_routes(served.incidents, served.monitor, served.windows))
    app.include_router(job_routes(served.topology, served.windows, served.monitor, served.goodput, served.controller))
    app.include_router(decision_routes(served.incidents, served.controller, served.access))
    app.include_router(alert_routes(served.alerts, served.access, served.metrics))
    app.include_router(discovery_routes(served.topology, cluster=served.cluster))
    _add_events(app, served.bus)
    _add_health(app, served)
    app.add_exception_handler(HTTPException, _plain_error)
    return app


def _add_events(app: FastAPI, bus: EventBus) -> None:
    async def lines() -> AsyncIterator[str]:
        yield ": everstep\n\n"
        async for text in bus.listen():
            yield f"data: {text}\n\n" if text else ": still here\n\n"

    @app.get("/api/v1/events", response_class=StreamingResponse, summary="Server-sent events")
    async def events() -> StreamingResponse:
        return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _add_health(app: FastAPI, served: Served) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, bool]:
        return {"ok": True}

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        problem = served.problem()
        return JSONResponse({"ready": not problem, "problem": problem}, status_code=503 if problem else 200)

    @app.get("/metrics", response_class=Response)
    def metrics() -> Response:
        return Response(generate_latest(served.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def _plain_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods answer in the same form as everything else."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else "failed"
    return refusal(status, f"{request.method} {request.url.path}: {detail}", "see /openapi.json for what there is")
