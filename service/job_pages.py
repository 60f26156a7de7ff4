"""Jobs, what is learned of them, the topology and where the GPU-seconds went."""

from __future__ import annotations

from typing import Any, Protocol

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from everstep.core.engine import Attempt
from everstep.core.topology import Topology
from everstep.service.goodput import Goodput
from everstep.service.monitor import Monitor
from everstep.service.records import plain
from everstep.service.window_store import WindowStore


class AttemptSource(Protocol):
    def current(self, job: str) -> Attempt | None: ...


def job_routes(
    topology: Topology, windows: WindowStore, monitor: Monitor, goodput: Goodput, attempts: AttemptSource
) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["jobs"])

    @router.get("/jobs")
    async def jobs() -> JSONResponse:
        names = monitor.baselines()
        return JSONResponse({"jobs": {name: _job(name, windows, monitor, attempts) for name in names}})

    @router.get("/baselines")
    async def baselines() -> JSONResponse:
        return JSONResponse({"jobs": plain(monitor.baselines())})

    @router.get("/topology")
    async def nodes() -> JSONResponse:
        return JSONResponse(plain(topology))

    @router.get("/goodput")
    async def goodput_seconds() -> JSONResponse:
        seconds = goodput.seconds()
        shares = {job: {"gpu_seconds": classes, "goodput": goodput.ratio(job)} for job, classes in seconds.items()}
        return JSONResponse({"jobs": plain(shares)})

    return router


def _job(name: str, windows: WindowStore, monitor: Monitor, attempts: AttemptSource) -> dict[str, Any]:
    attempt = attempts.current(name)
    progress = windows.views.progress(name)
    if attempt is None:
        return {"attempt": 0, "step": -1, "at": 0.0, "loss": None, "batch": None, "placements": [], "state": "waiting"}
    known = progress if progress is not None and progress.attempt == attempt.number else None
    step = known.step if known is not None else -1
    found: dict[str, Any] = plain(
        {
            "attempt": attempt.number,
            "step": step,
            "at": known.at if known is not None else 0.0,
            "loss": known.losses.get(step) if known is not None else None,
            "batch": known.batches.get(step) if known is not None else None,
            "placements": attempt.placements,
            "skip_batches": attempt.skip_batches,
            "state": monitor.job_state(name),
        }
    )
    return found
