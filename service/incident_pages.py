"""Incidents, their reports and the anomalies behind them."""

from __future__ import annotations

from typing import Any, Protocol

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.responses import Response

from everstep.core.events import Incident
from everstep.service.access import refusal
from everstep.service.monitor import Monitor
from everstep.service.records import plain
from everstep.service.window_store import WindowStore


class IncidentReader(Protocol):
    """The reading half of the store."""

    def get(self, incident_id: str) -> Incident | None: ...

    def incidents(self, job: str | None = None) -> tuple[Incident, ...]: ...

    def audit_trail(self, *, newest: int = 500) -> list[dict[str, Any]]: ...


def incident_routes(reader: IncidentReader, monitor: Monitor, windows: WindowStore) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["incidents"])

    @router.get("/incidents")
    async def incidents(job: str | None = None) -> JSONResponse:
        return JSONResponse({"incidents": plain(reader.incidents(job))})

    @router.get("/incidents/{incident_id}")
    async def incident(incident_id: str) -> Response:
        found = reader.get(incident_id)
        return JSONResponse(plain(found)) if found is not None else _unknown(incident_id)

    @router.get("/incidents/{incident_id}/report", response_class=HTMLResponse)
    def report(incident_id: str) -> Response:
        found = reader.get(incident_id)
        return HTMLResponse(_report(found, windows)) if found is not None else _unknown(incident_id)

    @router.get("/anomalies")
    async def anomalies(limit: int = 200) -> JSONResponse:
        newest = list(monitor.anomalies)[-max(1, limit) :]
        return JSONResponse({"anomalies": plain(newest)})

    return router


def _report(incident: Incident, windows: WindowStore) -> str:
    from everstep.service.report import Curve, RunFacts, render

    progress = windows.views.progress(incident.job)
    losses = {**windows.views.history(incident.job), **(progress.losses if progress is not None else {})}
    points = sorted(losses.items())
    return render(incident, RunFacts(curves=(Curve(name="loss", points=points),)) if points else None)


def _unknown(incident_id: str) -> JSONResponse:
    return refusal(404, f"there is no incident {incident_id!r}", "GET /api/v1/incidents lists them")
