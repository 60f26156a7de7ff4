"""A Prometheus as the command line asks it: bounded in time, in size and in tries; every failure is one clear line."""

from __future__ import annotations

import json
import math
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from everstep.core.errors import EverstepError
from everstep.core.metrics.coverage import Sighting

WAITS_S = (0.5, 1.5)
"""Between the tries; there is one try more than waits."""

MOST_BYTES = 32 * 2**20
BUSY = frozenset({429, 500, 502, 503, 504})
REFUSED = frozenset({400, 422})


class _BusyError(Exception):
    """Worth another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """An instant answer: labels, value, and when it was evaluated (seconds since the epoch, by its clock)."""

    labels: dict[str, str]
    value: float
    at: float


class Prometheus:
    """One address. Raises `EverstepError` from every method; use it as a context manager."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca_file: Path | None = None,
        timeout_s: float = 10.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._sleep = sleep
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._client = httpx.Client(timeout=timeout_s, headers=headers, verify=_trust(ca_file))

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def query(self, expr: str) -> list[Vector]:
        """The instant vector of an expression."""
        for wait_s in WAITS_S:
            try:
                return self._ask(expr)
            except (httpx.TransportError, _BusyError):
                self._sleep(wait_s)
        try:
            return self._ask(expr)
        except (httpx.TransportError, _BusyError) as error:
            problem = f"{self._url} does not answer ({str(error) or type(error).__name__})"
            raise EverstepError(problem, mend="check the address, --ca-file, and that Prometheus is up") from error

    def _ask(self, expr: str) -> list[Vector]:
        try:
            with self._client.stream("POST", f"{self._url}/api/v1/query", data={"query": expr}) as answer:
                body = self._read(answer)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise EverstepError(f"{self._url!r} is no address ({error})", mend="give http://host:port") from error
        status = answer.status_code
        if status in BUSY:
            raise _BusyError(f"HTTP {status}")
        if status in {401, 403}:
            raise EverstepError(f"{self._url} refuses us (HTTP {status})", mend="give its token with --token-file")
        return self._vectors(body, status)

    def _read(self, answer: httpx.Response) -> bytes:
        """The body within its bounds; httpx's own timeouts are for single reads."""
        deadline = time.monotonic() + self._timeout_s
        body = bytearray()
        for chunk in answer.iter_bytes():
            body += chunk
            if len(body) > MOST_BYTES:
                raise EverstepError(f"{self._url} answers with more than {MOST_BYTES} bytes", mend="ask one cluster")
            if time.monotonic() > deadline:
                raise _BusyError(f"the answer took longer than {self._timeout_s:g} s")
        return bytes(body)

    def _vectors(self, body: bytes, status: int) -> list[Vector]:
        try:
            said = json.loads(body)
            if status in REFUSED and said["status"] == "error":
                raise EverstepError(
                    f"{self._url} refuses the query ({said['error']})", mend="use Prometheus 2.40 or newer"
                )
            return [_vector(one) for one in said["data"]["result"]]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise EverstepError(
                f"{self._url} is not a Prometheus (HTTP {status} without its JSON)",
                mend="give the address at which its web page opens, without /api",
            ) from error


def _vector(one: Any) -> Vector:
    at, value = one["value"]
    return Vector(labels={str(key): str(text) for key, text in one["metric"].items()}, value=float(value), at=float(at))


def _trust(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        raise EverstepError(f"cannot use CA file {ca_file} ({error})", mend="give a readable PEM file") from error


def sightings(prometheus: Prometheus, names: Iterable[str]) -> tuple[Sighting, ...]:
    """Which of the names have living series, by scrape job. Two questions, however many names."""
    counts = prometheus.query(f'count by (__name__, job) ({{__name__=~"{"|".join(names)}"}})')
    found = {(one.labels.get("__name__", ""), one.labels.get("job", "")): int(one.value) for one in counts}
    if not found:
        return ()
    parts = (
        f'label_replace(max by (job) (timestamp({name})), "series", "{name}", "", "")'
        for name in dict.fromkeys(name for name, _ in found)
    )
    ages = {
        (one.labels.get("series", ""), one.labels.get("job", "")): max(0.0, one.at - one.value)
        for one in prometheus.query(" or ".join(parts))
    }
    return tuple(
        Sighting(name=name, job=job, num_series=count, newest_age_s=ages.get((name, job), math.inf))
        for (name, job), count in sorted(found.items())
    )
