"""The live path: remote-write to the service once an interval, and at once when something has changed.

While the service is away the batches wait in a bounded buffer; they are sent again in order. One log line says that it
went, one that it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import httpx
import structlog

from everstep.collector.encoding import Batch, BatchEncoder, merge
from everstep.collector.push_buffer import PushBuffer
from everstep.collector.samples import Dated, Sample
from everstep.core.clock import Clock
from everstep.core.errors import ConfigError
from everstep.core.remote_write import HEADERS

WRITE_PATH = "/api/v1/write"
MERGED_BATCHES = 50
_NO_ACCESS = frozenset({httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN})  # a matter of a token file, not of the batch
WAKE_GAP_S = 0.02
"""Changes that come together travel together; also keeps two samples of one series apart by more than a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    service_url: str
    token: str | None
    token_file: Path | None
    ca_file: Path | None
    timeout_s: float


class _Outcome(Enum):
    SENT = auto()
    REFUSED = auto()
    TOO_LARGE = auto()
    UNAVAILABLE = auto()


class Pusher:
    """Runs in the agent's event loop; `gather` gives the samples and takes them from their sources."""

    def __init__(
        self,
        target: PushTarget,
        encoder: BatchEncoder,
        buffer: PushBuffer,
        gather: Callable[[], Iterable[Sample | Dated]],
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._target = target
        self._encoder = encoder
        self._buffer = buffer
        self._gather = gather
        self._clock = clock
        self._interval_s = interval_s
        self._wake = asyncio.Event()
        self._client = _client(target)
        self._log = structlog.get_logger().bind(service=target.service_url)
        self._away_since: float | None = None
        self._mend_told = ""
        self._merged = MERGED_BATCHES  # less for a service that takes only smaller bodies
        self._refused: dict[int, int] = {}

    def wake(self) -> None:
        """Push now."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.push()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            await asyncio.sleep(WAKE_GAP_S)
            self._wake.clear()

    async def push(self) -> None:
        """Gather once and send what is waiting, oldest first."""
        now = self._clock.now()
        batch = self._encoder.encode(self._gather(), now)
        if batch.num_samples:
            self._buffer.add(batch)
        while len(self._buffer):
            some = self._buffer.oldest(self._merged)
            outcome = await self._send(merge(some), alone=len(some) == 1)
            if outcome is _Outcome.UNAVAILABLE:
                return
            if outcome is _Outcome.TOO_LARGE:
                self._merged = len(some) // 2
                continue
            self._buffer.discard(len(some))
        self._back()

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(self, batch: Batch, *, alone: bool) -> _Outcome:
        try:
            response = await self._client.post(WRITE_PATH, content=batch.body)
        except httpx.HTTPError as error:
            self._gone(str(error) or type(error).__name__, self._mend_of(error))
            return _Outcome.UNAVAILABLE
        if response.is_success:
            return _Outcome.SENT
        if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
            self._gone(f"HTTP {response.status_code}", "samples wait here; see the service's log")
            return _Outcome.UNAVAILABLE
        if response.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE and not alone:
            return _Outcome.TOO_LARGE
        self._refuse(response, batch)
        if response.status_code in _NO_ACCESS:
            self._away_since = self._clock.now() if self._away_since is None else self._away_since
            return _Outcome.UNAVAILABLE
        return _Outcome.REFUSED

    def _gone(self, problem: str, mend: str) -> None:
        if self._away_since is None:
            self._away_since = self._clock.now()
        if mend != self._mend_told:  # a service that comes up with another trouble is told of again
            self._mend_told = mend
            self._log.warning("service_unavailable", error=problem, mend=mend)

    def _mend_of(self, error: httpx.HTTPError) -> str:
        """What to do about a request without an answer; the samples wait in any case."""
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "samples wait here; set agent.service_ca_file to the authority of the service's certificate"
        if "[SSL" in str(error) or isinstance(error, httpx.ReadError | httpx.RemoteProtocolError):
            scheme = "http" if self._target.service_url.startswith("https:") else "https"
            return f"samples wait here; start the service, or let agent.service_url begin with {scheme}: if it runs"
        return "samples wait here; start the service"

    def _back(self) -> None:
        if self._away_since is None:
            return
        self._refused.clear()
        self._mend_told = ""
        away_s = round(self._clock.now() - self._away_since, 1)
        self._away_since = None
        self._log.info("service_back", away_s=away_s, samples_dropped=self._buffer.num_dropped)
        self._buffer.num_dropped = 0

    def _refuse(self, response: httpx.Response, batch: Batch) -> None:
        status = response.status_code
        if status not in self._refused:
            self._log.error("push_refused", status=status, answer=response.text[:200], mend=self._mend(status))
        self._refused[status] = self._refused.get(status, 0) + batch.num_samples

    def _mend(self, status: int) -> str:
        if status in _NO_ACCESS:
            file = self._target.token_file
            return (
                f"compare {file} with the service's listen.token_file"
                if file is not None
                else "set agent.service_token_file to a copy of the service's listen.token_file"
            )
        if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            return "raise service.max_body_bytes and service.max_decoded_bytes, or push more often"
        return "use one Everstep version on service and agents; check agent.service_url"


def _client(target: PushTarget) -> httpx.AsyncClient:
    headers = dict(HEADERS)
    if target.token is not None:
        headers["Authorization"] = f"Bearer {target.token}"
    return httpx.AsyncClient(
        base_url=target.service_url,
        headers=headers,
        timeout=target.timeout_s,
        verify=_tls(target),
        trust_env=False,
        limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
    )


def _tls(target: PushTarget) -> ssl.SSLContext:
    """Raises `ConfigError` on an unusable CA file. Loads nothing without https: the system's list costs megabytes."""
    if not target.service_url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return ssl.create_default_context(cafile=str(target.ca_file) if target.ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot read agent.service_ca_file {target.ca_file} ({error})",
            mend="give the PEM file of the service's certificate authority",
        ) from error
