"""History of a job from a real Prometheus: what was pushed there comes back as learned baselines."""

from __future__ import annotations

import math
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from everstep.core.remote_write import HEADERS, encode_series, series
from everstep.service.history import History, range_query

pytestmark = pytest.mark.integration


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("HISTORY NOT TESTED: prometheus is missing; apt-get install prometheus")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    (tmp_path / "prometheus.yml").write_text("{}")
    flags = [
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address={address}",
        "--web.enable-remote-write-receiver",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([binary, *flags], stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                if httpx.get(f"http://{address}/-/ready", timeout=2).is_success:
                    break
            except httpx.HTTPError:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=15)


def test_what_prometheus_holds_is_learned(prometheus: str, tmp_path: Path) -> None:
    now = time.time()
    times = [now - 600 + 5 * index for index in range(120)]
    steps = [(at, (at - times[0]) / 0.5) for at in times]
    batch = []
    for rank in range(3):
        labels = {"train_job": "demo", "rank": str(rank)}
        compute = [(at, 0.1 * (rank + 1) + 1e-4 * math.sin(at)) for at in times]
        batch.append(series("everstep_train_step_compute_seconds", labels, compute))
        batch.append(series("everstep_train_steps_total", labels, steps))
    answer = httpx.post(f"{prometheus}/api/v1/write", content=encode_series(batch), headers=HEADERS, timeout=10)
    assert answer.status_code == 204, answer.text
    state = History("demo", range_query(prometheus), tmp_path / "history.json").fetch(now=now)
    assert len(state["baseline"]["demo/2"]) > 20
    assert math.exp(state["baseline"]["demo/2"][-1]) == pytest.approx(0.3, rel=0.01)
    assert state["durations"][-1] == pytest.approx(0.5, rel=0.05)
    assert History("other", range_query(prometheus), tmp_path / "other.json").fetch(now=now)["durations"] == []
