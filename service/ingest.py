"""The push door: `POST /api/v1/write`, Prometheus remote-write 1.0, bounded before and after decompression."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from everstep.core.clock import Clock
from everstep.core.errors import WireError
from everstep.core.remote_write import CONTENT_TYPE, decompress
from everstep.service.access import Access, refusal
from everstep.service.body import read_body
from everstep.service.self_metrics import SelfMetrics
from everstep.service.window_store import WindowStore

MESSAGE = "prometheus.writerequest"


class Ingest:
    """Answers 204 for a body that was taken, 4xx with one line that names the mend for any other."""

    def __init__(
        self,
        windows: WindowStore,
        access: Access,
        metrics: SelfMetrics,
        clock: Clock,
        *,
        max_body_bytes: int,
        max_decoded_bytes: int,
        on_push: Callable[[], None],
    ) -> None:
        self._windows = windows
        self._access = access
        self._metrics = metrics
        self._clock = clock
        self._max_body_bytes = max_body_bytes
        self._max_decoded_bytes = max_decoded_bytes
        self._on_push = on_push

    async def write(self, request: Request) -> Response:
        denied = self._access.check_if_configured(request.headers)
        if denied is not None:
            return denied
        kind = request.headers.get("content-type", CONTENT_TYPE).lower()
        encoding = request.headers.get("content-encoding", "snappy").lower()
        if not _is_version_1(kind) or encoding != "snappy":
            return refusal(415, f"content is {kind}, {encoding}", f"send {CONTENT_TYPE} with snappy encoding")
        try:
            body = await read_body(request, most=self._max_body_bytes)
        except WireError as error:
            return refusal(400, error.problem, error.mend)
        if body is None:
            return refusal(413, f"body is longer than {self._max_body_bytes} bytes", "send smaller batches")
        started = time.perf_counter()
        try:
            raw = decompress(body, max_bytes=self._max_decoded_bytes)
            self._windows.apply(raw, arrived=self._clock.now())
        except WireError as error:
            too_large = "would decompress" in error.problem
            return refusal(413 if too_large else 400, error.problem, error.mend)
        self._metrics.stage("ingest", seconds=time.perf_counter() - started, now=self._clock.now())
        self._on_push()
        return Response(status_code=204)


def _is_version_1(content_type: str) -> bool:
    """Remote-write 2.0 has the same type with another message; whoever sends it falls back to 1.0 after a 415."""
    kind, _, rest = content_type.partition(";")
    name, _, message = rest.partition(";")[0].partition("=")
    return kind.strip() == CONTENT_TYPE and (name.strip() != "proto" or message.strip(' "') == MESSAGE)
