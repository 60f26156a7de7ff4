"""Debian's Prometheus and Alertmanager on free ports, as the tests of this folder start them."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from everstep.core.remote_write import HEADERS, Series, encode_series

START_TIMEOUT_S = 40.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def get(url: str, **query: str) -> Any:
    answer = httpx.get(url, params=query, timeout=5)
    answer.raise_for_status()
    return answer.json() if answer.headers["content-type"].startswith("application/json") else answer.text


def until(what: str, ready: Callable[[], bool], *, within_s: float = START_TIMEOUT_S) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            if ready():
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline, f"{what} not within {within_s:.0f} s"
        time.sleep(0.1)


def found(url: str, expr: str) -> bool:
    return bool(get(f"{url}/api/v1/query", query=expr)["data"]["result"])


def remote_write(url: str, batch: Iterable[Series]) -> None:
    answer = httpx.post(f"{url}/api/v1/write", content=encode_series(batch), headers=HEADERS, timeout=20)
    assert answer.status_code == 204, answer.text


def binary(name: str) -> str:
    """Its path; a skip in one loud line where the Debian package of the same name is missing."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"MONITORING STACK NOT TESTED: {name} is missing; apt-get install {name}")
    return path


@contextmanager
def running(
    argv: list[str], log: Path, ready_url: str = "", *, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """The process from when `ready_url` answers until the block ends; `environment` comes on top of ours."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
    try:
        if ready_url:
            until(argv[0], lambda: process.poll() is not None or bool(get(ready_url)))
            assert process.poll() is None, log.read_text()[-3000:]
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=15)


@contextmanager
def prometheus(config: Path, folder: Path, *, port: int = 0) -> Iterator[str]:
    """Its address. What fires before Alertmanager is discovered is sent again soon, not after Prometheus' minute."""
    at = f"127.0.0.1:{port or free_port()}"
    argv = [
        binary("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={at}",
        "--web.enable-remote-write-receiver",
        "--rules.alert.resend-delay=2s",
    ]
    with running(argv, folder / "prometheus.log", f"http://{at}/-/ready"):
        yield f"http://{at}"


@contextmanager
def alertmanager(config: Path, folder: Path, *, port: int = 0) -> Iterator[str]:
    """Its address."""
    at = f"127.0.0.1:{port or free_port()}"
    argv = [
        binary("prometheus-alertmanager"),
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={at}",
        "--cluster.listen-address=",
    ]
    with running(argv, folder / "alertmanager.log", f"http://{at}/-/ready"):
        yield f"http://{at}"
