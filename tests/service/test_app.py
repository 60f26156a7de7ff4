"""The HTTP face over a live monitor with fake neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import cramjam
import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep.core.remote_write import HEADERS, encode_series, series
from everstep.core.settings import NodeEntry
from everstep.service.access import Access
from everstep.service.alert_desk import AlertDesk
from everstep.service.alert_door import MAX_BYTES
from everstep.service.app import Served, build_app
from everstep.service.ingest import Ingest

World = Any
TOKEN = {"Authorization": "Bearer secret"}


class Web:
    """Requests straight into the app, one loop each."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, path, **given)

        return asyncio.run(ask())

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self.request("POST", path, **given)


def client(world: World, *, token: str | None = None, problem: str = "") -> Web:
    access = Access(token)
    ingest = Ingest(
        world.windows,
        access,
        world.metrics,
        world.clock,
        max_body_bytes=4096,
        max_decoded_bytes=16_384,
        on_push=world.monitor.wake,
    )
    served = Served(
        topology=world.settings.topology(),
        windows=world.windows,
        monitor=world.monitor,
        incidents=world.store,
        controller=world.controller,
        ingest=ingest,
        alerts=AlertDesk(world.store, world.monitor, world.clock),
        access=access,
        bus=world.bus,
        goodput=world.goodput,
        metrics=world.metrics,
        problem=lambda: problem,
    )
    return Web(build_app(served))


@pytest.fixture
def web(world: World) -> Web:
    return client(world)


def body(world: World) -> bytes:
    labels = {"node": "node-0", "gpu": "0", "sensor": "core"}
    return encode_series([series("everstep_gpu_temperature_celsius", labels, [(world.clock.now(), 50.0)])])


def test_a_push_is_taken(world: World, web: Web) -> None:
    answer = web.post("/api/v1/write", content=body(world), headers=HEADERS)
    assert answer.status_code == 204
    assert answer.content == b""
    assert world.windows.num_accepted == 1
    assert world.windows.last_push() == {"node-0": world.clock.now()}


def test_a_configured_token_is_asked_for(world: World) -> None:
    web = client(world, token="secret")
    push = body(world)
    assert web.post("/api/v1/write", content=push, headers=HEADERS).status_code == 401
    wrong = {**HEADERS, "Authorization": "Bearer wrong"}
    assert web.post("/api/v1/write", content=push, headers=wrong).status_code == 403
    assert web.post("/api/v1/write", content=push, headers={**HEADERS, **TOKEN}).status_code == 204


def test_refused_bodies_say_why(world: World, web: Web) -> None:
    def status(content: bytes, **headers: str) -> int:
        answer = web.post("/api/v1/write", content=content, headers={**HEADERS, **headers})
        assert "; " in answer.json()["error"]
        return answer.status_code

    assert status(b"not snappy") == 400
    assert status(bytes(cramjam.snappy.compress_raw(b"\x0a\xff"))) == 400
    assert status(b"x" * 5000) == 413
    assert status(bytes(cramjam.snappy.compress_raw(bytes(20_000)))) == 413
    assert status(body(world), **{"Content-Type": "application/json"}) == 415
    assert status(body(world), **{"Content-Encoding": "gzip"}) == 415
    assert status(body(world), **{"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}) == 415
    assert world.windows.num_accepted == 0


@pytest.mark.parametrize(
    "kind",
    [
        "Application/X-Protobuf",
        "application/x-protobuf; charset=x",
        "application/x-protobuf;proto=prometheus.WriteRequest",
    ],
)
def test_all_spellings_of_version_1_are_taken(world: World, web: Web, kind: str) -> None:
    headers = {**HEADERS, "Content-Type": kind, "Content-Encoding": "Snappy"}
    assert web.post("/api/v1/write", content=body(world), headers=headers).status_code == 204


def test_an_undeclared_long_body_is_cut_off(world: World, web: Web) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    answer = web.post("/api/v1/write", content=chunks(), headers=HEADERS)
    assert answer.status_code == 413


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda raw: bytes(cramjam.snappy.compress_raw(raw))))
)
def test_any_bytes_are_answered_and_never_with_500(web: Web, content: bytes) -> None:
    assert web.post("/api/v1/write", content=content, headers=HEADERS).status_code in {204, 400, 413}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4), st.floats(), st.floats(-1e12, 1e12))
def test_any_labels_and_numbers_are_answered(web: Web, labels: dict[str, str], value: float, at: float) -> None:
    labels = {key.encode("utf-8", "replace").decode(): text for key, text in labels.items()}
    content = encode_series([series("everstep_train_loss", {**labels, "train_job": "x"}, [(at, value)])])
    assert web.post("/api/v1/write", content=content, headers=HEADERS).status_code in {204, 400}


def test_jobs_baselines_goodput_and_topology(world: World, web: Web) -> None:
    waiting = web.get("/api/v1/jobs").json()["jobs"]["demo"]
    assert (waiting["attempt"], waiting["state"]) == (0, "waiting")
    world.launch()
    world.run(10)
    job = web.get("/api/v1/jobs").json()["jobs"]["demo"]
    assert job["attempt"] == 1
    assert job["step"] > 30
    assert job["batch"] == job["step"] - 1
    assert job["loss"] == pytest.approx(3.0 - 0.001 * job["step"])
    assert job["placements"][1] == {"rank": 1, "node": "node-1", "local_rank": 0}
    assert job["state"] == "running"
    learned = web.get("/api/v1/baselines").json()["jobs"]["demo"]
    assert learned["learned"] is True
    assert learned["median_step_s"] == pytest.approx(0.2)
    assert learned["deadline_s"] == 1.5
    shares = web.get("/api/v1/goodput").json()["jobs"]["demo"]
    assert shares["goodput"] > 0.8
    assert web.get("/api/v1/topology").json()["nodes"]["node-3"]["spare"] is True


def test_incidents_anomalies_actions_and_report(world: World, web: Web) -> None:
    world.launch()
    world.run(10)
    world.agents[1].state, world.agents[1].exit_code, world.agents[1].reason = "killed", -9, "signal"
    world.push(1)
    world.monitor.tick()
    (found,) = web.get("/api/v1/incidents").json()["incidents"]
    assert found["job"] == "demo"
    assert web.get(f"/api/v1/incidents/{found['id']}").json() == found
    assert found["anomalies"][0]["entity"] == {"kind": "rank", "name": "demo/1"}
    assert web.get("/api/v1/incidents?job=other").json() == {"incidents": []}
    (anomaly,) = web.get("/api/v1/anomalies").json()["anomalies"]
    assert anomaly["detector"] == "process"
    page = web.get(f"/api/v1/incidents/{found['id']}/report")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "demo/1" in page.text
    assert web.get("/api/v1/actions").json() == {"actions": []}
    assert web.get("/api/v1/actions/audit").json() == {"audit": []}


def test_prometheus_discovers_the_agents_without_a_token(world: World) -> None:
    nodes = [NodeEntry(name="node-0", agent_url="http://10.0.0.1:9810"), NodeEntry(name="node-1")]
    world.settings = world.settings.model_copy(update={"nodes": nodes})
    answer = client(world, token="secret").get("/sd")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == [{"targets": ["10.0.0.1:9810"], "labels": {"node": "node-0", "rack": "rack-0"}}]


def test_unknown_things_are_404_with_a_mend(web: Web) -> None:
    for path in ("/api/v1/incidents/nope", "/api/v1/incidents/nope/report", "/nope"):
        answer = web.get(path)
        assert answer.status_code == 404
        assert "; " in answer.json()["error"]
    assert web.get("/api/v1/write").status_code == 405


def test_decisions_need_a_token(world: World) -> None:
    web = client(world)
    assert web.post("/api/v1/actions/waiting.0/approve", headers=TOKEN).status_code == 403
    web = client(world, token="secret")
    assert web.post("/api/v1/actions/waiting.0/approve").status_code == 401
    assert web.post("/api/v1/actions/waiting.0/approve", headers=TOKEN).json() == {"ok": True}
    assert web.post("/api/v1/actions/waiting/reject", headers=TOKEN).json() == {"ok": True}
    assert web.post("/api/v1/actions/other.0/reject", headers=TOKEN).status_code == 404


def test_alerts_need_a_token_and_count_once(world: World) -> None:
    alert = {
        "status": "firing",
        "labels": {"alertname": "GpuMissing", "severity": "critical", "fault": "F01", "node": "elsewhere"},
        "startsAt": "2026-12-01T05:36:38.123Z",
        "fingerprint": "abc",
    }
    hook = {"version": "4", "groupKey": "g", "truncatedAlerts": 1, "alerts": [alert]}
    assert client(world).post("/api/v1/alerts", json=hook).status_code == 403
    web = client(world, token="secret")
    assert web.post("/api/v1/alerts", json=hook).status_code == 401
    assert web.post("/api/v1/alerts", json=hook, headers=TOKEN).json() == {"told": 1}
    assert web.post("/api/v1/alerts", json=hook, headers=TOKEN).json() == {"duplicate": 1}
    assert web.post("/api/v1/alerts", content=b"x", headers=TOKEN).status_code == 400
    assert web.post("/api/v1/alerts", content=bytes(MAX_BYTES + 1), headers=TOKEN).status_code == 413
    text = web.get("/metrics").text
    assert 'everstep_alerts_total{outcome="duplicate"} 1.0' in text
    assert len(web.get("/api/v1/incidents").json()["incidents"]) == 1


def test_health_readiness_and_openapi(world: World) -> None:
    web = client(world)
    assert web.get("/healthz").json() == {"ok": True}
    assert web.get("/readyz").status_code == 200
    assert "/api/v1/incidents/{incident_id}" in web.get("/openapi.json").json()["paths"]
    web = client(world, problem="no monitor")
    assert web.get("/readyz").status_code == 503


def test_own_metrics_are_exposed(world: World, web: Web) -> None:
    web.post("/api/v1/write", content=body(world), headers=HEADERS)
    text = web.get("/metrics").text
    assert 'everstep_detector_run_duration_seconds_count{stage="ingest"} 1.0' in text


def test_events_stream_ends_when_the_bus_closes(world: World, web: Web) -> None:
    world.bus.close()
    answer = web.get("/api/v1/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text == ": everstep\n\n"
