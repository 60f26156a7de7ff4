"""A NaN loss and a lost GPU on two ways, with real servers.

One way is agent, Prometheus, rule, Alertmanager, webhook, incident; the other is the live path to an incident, and its
verdict to Alertmanager. Rank records and a GPU library's state are written here; all else are processes of their own.
Times are printed; only outcomes are asserted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from everstep.core.clock import SystemClock
from everstep.core.events import Entity, EntityKind, Incident, IncidentState, RootCause
from everstep.core.rank_record import SLOTS, RankRecordWriter
from everstep.service.alert_post import AlertPost, sender

sys.path.append(str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from alert_stack import Stack, eventually, started

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
LOST = 79
VERDICT = "EverstepIncident"


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with started(Stack(tmp_path)) as made:
        yield made


@pytest.fixture
def stack_with_gpus(tmp_path: Path) -> Iterator[Stack]:
    """Nothing of ours runs here, so that an alert alone can tell of anything."""
    with started(Stack(tmp_path).with_gpus()) as made:
        yield made


@pytest.fixture
def stack_with_job(tmp_path: Path) -> Iterator[Stack]:
    """A job of one rank on node-0, and a spare; GPUs on both."""
    with started(Stack(tmp_path, nodes=("node-0", "node-1"), job=True).with_gpus()) as made:
        yield made


def _told(stack: Stack, alert: str) -> list[Any]:
    """Incidents that began with this alert."""
    return [one for one in stack.incidents() if one["anomalies"][0]["evidence"].get("alert") == alert]


def test_a_nan_loss_reaches_an_incident_through_prometheus_and_alertmanager(stack: Stack) -> None:
    records = stack.folder / "run/node-0/records/demo"
    records.mkdir(parents=True, exist_ok=True)
    record = RankRecordWriter(records / "rank-0.rec", job="demo", rank=0, world_size=1, attempt=1)
    record.set(SLOTS[("everstep_train_attempt", ())], 1.0)
    record.set(SLOTS[("everstep_train_loss", ())], float("nan"))
    record.add_step((1, time.time(), 0.05, 0.04, 0.0, float("nan"), 1.0, 1))
    record.publish()
    began = time.monotonic()
    alert = "TrainLossNotFinite"
    (incident, *_) = eventually(lambda: _told(stack, alert), "an incident of the alert", stack.folder / "service.log")
    _tell(f"NaN loss to incident through Prometheus and Alertmanager: {time.monotonic() - began:.1f} s")
    assert incident["causes"][0]["fault"] == "F28"
    assert incident["state"] == "escalated", "nothing of ours runs under that name, so nothing may act"
    assert incident["actions"] == []


def test_a_lost_gpu_reaches_an_incident_through_prometheus_and_alertmanager(stack_with_gpus: Stack) -> None:
    stack = stack_with_gpus
    quiet = f'everstep_gpu_xid_errors_total{{xid="{LOST}"}} == 0'
    eventually(lambda: len(stack.query(quiet)) == 2, "both GPUs in Prometheus", stack.folder / "node-0.log")
    began = time.monotonic()
    stack.gpus["node-0"].xid(0, LOST)
    stack.gpus["node-0"].set(0, lost=1)
    (by_code, *_) = eventually(lambda: _told(stack, "XidGpuLost"), "an incident of the code")
    _tell(f"lost GPU to incident through Prometheus and Alertmanager: {time.monotonic() - began:.1f} s")
    (by_silence, *_) = eventually(lambda: _told(stack, "GpuDown"), "an incident of the silence")
    for incident in (by_code, by_silence):
        (cause,) = incident["causes"]
        assert (cause["fault"], cause["entity"]) == ("F01", {"kind": "gpu", "name": "node-0/0"})
        assert incident["state"] == "escalated"
        assert incident["actions"] == []
    (answering,) = stack.query("everstep_gpu_up == 1")
    assert answering["metric"]["gpu"] == "1"


def test_a_lost_gpu_is_found_live_healed_and_told_to_alertmanager(stack_with_job: Stack) -> None:
    stack = stack_with_job
    jobs = "/api/v1/jobs"
    eventually(
        lambda: stack.get("service", jobs)["jobs"]["demo"]["step"] > 20,
        "a job that steps",
        stack.folder / "service.log",
    )
    began = time.time()
    stack.gpus["node-0"].xid(1, LOST)
    stack.gpus["node-0"].set(1, lost=1)
    (alert, *_) = eventually(lambda: stack.firing(VERDICT), "the verdict at Alertmanager", stack.folder / "service.log")
    told_s = time.time() - began
    (incident,) = stack.incidents()
    _tell(
        f"lost GPU to incident on the live path: {incident['opened'] - began:.2f} s, "
        f"its verdict at Alertmanager: {told_s:.2f} s"
    )
    cause = incident["causes"][0]
    assert (cause["fault"], cause["entity"]) == ("F01", {"kind": "gpu", "name": "node-0/1"})
    assert alert["labels"]["node"] == "node-0"
    assert alert["annotations"]["cause"].startswith("F01")
    eventually(lambda: stack.incidents()[-1]["state"] == "resolved", "the recovery", stack.folder / "service.log")
    (healed, *_) = [one for one in stack.incidents() if one["id"] == incident["id"]]
    _tell(f"lost GPU to the verified recovery: {healed['closed'] - began:.2f} s")
    done = {one["action"]["kind"] for one in healed["actions"] if one["outcome"] == "succeeded"}
    assert done >= {"isolate_node", "rollback_checkpoint"}
    (placement,) = stack.get("service", jobs)["jobs"]["demo"]["placements"]
    assert placement["node"] == "node-1"


def test_a_verdict_reaches_alertmanager_and_ends_there(stack: Stack) -> None:
    now = time.time()
    rank = Entity(kind=EntityKind.RANK, name="demo/1")
    incident = Incident(
        id="demo-1-abc",
        job="demo",
        attempt=1,
        opened=now,
        onset=now - 1,
        diagnosed=now,
        state=IncidentState.DIAGNOSED,
        causes=(RootCause(entity=rank, fault="F28", confidence=0.9),),
    )
    outcomes: list[str] = []
    post = AlertPost(
        sender(stack.url("alertmanager")), SystemClock(), public_url=stack.url("service"), on_outcome=outcomes.append
    )

    def taken_back() -> bool:
        answer = httpx.get(stack.url("service") + "/metrics", timeout=5).text
        return 'everstep_alerts_total{outcome="own"}' in answer

    began = time.monotonic()
    post.put(incident)
    post.turn()
    (alert,) = eventually(lambda: stack.firing(VERDICT), "the verdict at Alertmanager")
    _tell(f"verdict to Alertmanager: {time.monotonic() - began:.1f} s")
    assert alert["labels"]["rank"] == "1"
    assert alert["annotations"]["cause"].startswith("F28")
    eventually(taken_back, "our own verdict at our webhook")
    assert stack.incidents() == []
    post.put(replace(incident, state=IncidentState.RESOLVED, closed=time.time()))
    post.turn()
    eventually(lambda: not stack.firing(VERDICT), "the end of the alert")
    assert outcomes == ["sent", "sent"]
