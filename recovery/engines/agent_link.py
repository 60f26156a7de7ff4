"""One keep-alive HTTP connection pool to all node agents, with short timeouts and plain words for what went wrong."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from everstep.core.errors import ConfigError

CONNECT_TIMEOUT_S = 0.5
FORGET_UNREACHABLE_S = 2.0
MAX_PROBLEM = 300

Answer = Mapping[str, Any]


class AgentUnreachableError(Exception):
    """No answer; `detail` is refused, timeout or a word on the connection."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class AgentRefusedError(Exception):
    """The agent answered and did not do it; `status` is the HTTP status."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem


class AgentLink:
    """Thread-safe. A node that just failed to answer is not asked again for `FORGET_UNREACHABLE_S`."""

    def __init__(self, urls: Mapping[str, str], token: str | None, ca_file: Path | None) -> None:
        """Raises `ConfigError` on an unusable CA file."""
        self._urls = dict(urls)
        self._down: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(
            headers=headers,
            verify=_verify(ca_file),
            limits=httpx.Limits(max_connections=256, max_keepalive_connections=256, keepalive_expiry=60.0),
            trust_env=False,
        )

    def close(self) -> None:
        self._client.close()

    def get(self, node: str, path: str, *, timeout_s: float, fresh: bool = False) -> Answer:
        """`fresh` asks also a node that just did not answer, and takes silence for its absence.

        Raises the two errors of this module.
        """
        return self._ask("GET", node, path, None, timeout_s=timeout_s, fresh=fresh)

    def post(self, node: str, path: str, body: Mapping[str, Any], *, timeout_s: float) -> Answer:
        """Raises the two errors of this module."""
        return self._ask("POST", node, path, body, timeout_s=timeout_s, fresh=False)

    def _ask(
        self, method: str, node: str, path: str, body: Mapping[str, Any] | None, *, timeout_s: float, fresh: bool
    ) -> Answer:
        url = self._urls.get(node, "")
        if not url:
            raise AgentUnreachableError("no agent_url in the topology")
        if not fresh:
            self._raise_if_down(node)
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        try:
            response = self._send(method, url + path, body, timeout)
        except httpx.InvalidURL as error:
            raise AgentUnreachableError(f"unusable agent_url {url}"[:MAX_PROBLEM]) from error
        except httpx.HTTPError as error:
            detail = _detail(error)
            if fresh or not isinstance(error, httpx.ReadTimeout):  # a slow verb is no proof that the node is away
                self._mark_down(node, detail)
            raise AgentUnreachableError(detail) from error
        with self._lock:
            self._down.pop(node, None)
        return _parsed(response)

    def _send(self, method: str, url: str, body: Mapping[str, Any] | None, timeout: httpx.Timeout) -> httpx.Response:
        """Once more when the agent had closed a kept connection; every verb is idempotent."""
        try:
            return self._client.request(method, url, json=body, timeout=timeout)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return self._client.request(method, url, json=body, timeout=timeout)

    def _raise_if_down(self, node: str) -> None:
        with self._lock:
            since, detail = self._down.get(node, (0.0, ""))
        if detail and time.monotonic() - since < FORGET_UNREACHABLE_S:
            raise AgentUnreachableError(detail)

    def _mark_down(self, node: str, detail: str) -> None:
        with self._lock:
            self._down[node] = (time.monotonic(), detail)


def _verify(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot use CA file {ca_file} ({error})", mend="point service.agent_ca_file at a PEM certificate"
        ) from error


def _detail(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "timeout"
    if isinstance(error, httpx.ConnectError):
        return "refused" if "refused" in str(error).lower() else f"connect: {error}"[:MAX_PROBLEM]
    return f"{type(error).__name__}: {error}"[:MAX_PROBLEM]


def _parsed(response: httpx.Response) -> Answer:
    try:
        body = response.json()
    except ValueError:
        body = None
    if response.is_success and isinstance(body, dict):
        return body
    problem = body.get("error") if isinstance(body, dict) else None
    raise AgentRefusedError(response.status_code, str(problem or f"unexpected answer, HTTP {response.status_code}"))
