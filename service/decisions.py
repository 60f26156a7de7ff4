"""Actions that were or will be taken, and a person's word on those that wait for one."""

from __future__ import annotations

from typing import Any, Protocol

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import Response

from everstep.core.actions import Outcome, PlannedAction
from everstep.core.engine import Attempt
from everstep.core.events import OPEN_STATES, Incident
from everstep.service.access import Access, refusal
from everstep.service.incident_pages import IncidentReader
from everstep.service.records import plain


class Approver(Protocol):
    """The controller, as far as persons decide through it."""

    def current(self, job: str) -> Attempt | None: ...

    def approve(self, incident_id: str) -> bool:
        """Whether a plan was waiting for this word."""
        ...

    def reject(self, incident_id: str) -> bool:
        """Whether a plan was waiting for this word."""
        ...


def decision_routes(reader: IncidentReader, approver: Approver, access: Access) -> APIRouter:
    router = APIRouter(prefix="/api/v1/actions", tags=["actions"])

    @router.get("")
    async def actions() -> JSONResponse:
        return JSONResponse({"actions": [row for incident in reader.incidents() for row in _rows(incident)]})

    @router.get("/audit")
    async def audit() -> JSONResponse:
        return JSONResponse({"audit": plain(reader.audit_trail())})

    @router.post("/{action_id}/approve")
    async def approve(action_id: str, request: Request) -> Response:
        return access.check(request.headers) or _answer(action_id, approved=approver.approve(_incident_of(action_id)))

    @router.post("/{action_id}/reject")
    async def reject(action_id: str, request: Request) -> Response:
        return access.check(request.headers) or _answer(action_id, approved=approver.reject(_incident_of(action_id)))

    return router


def _answer(action_id: str, *, approved: bool) -> Response:
    if approved:
        return JSONResponse({"ok": True})
    return refusal(404, f"nothing waits under {action_id!r}", "GET /api/v1/actions shows what does")


def _incident_of(action_id: str) -> str:
    """Actions are numbered within their incident; a word on one is a word on the plan."""
    return action_id.rpartition(".")[0] or action_id


def _rows(incident: Incident) -> list[dict[str, Any]]:
    planned = list(incident.actions)
    if not planned and incident.plan is not None:
        planned = [PlannedAction(action=action) for action in incident.plan.actions]
    waiting = incident.plan is not None and incident.plan.needs_approval and incident.state in OPEN_STATES
    return [
        {
            "id": f"{incident.id}.{number}",
            "incident": incident.id,
            "job": incident.job,
            "needs_approval": waiting and one.outcome is Outcome.PLANNED,
            **plain(one),
        }
        for number, one in enumerate(planned)
    ]
