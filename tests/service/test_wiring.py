"""The whole service without a socket: what a former process left is taken up, numbers are exposed, it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from everstep.core.events import Incident, IncidentState
from everstep.core.settings import ServiceSettings
from everstep.service.storage import SqliteStore
from everstep.service.wiring import Service, cut_off

World = Any
INCIDENT = Incident(id="demo-1-abc", job="demo", attempt=1, opened=10.0, onset=9.0)


def settings(tmp_path: Path) -> ServiceSettings:
    return ServiceSettings.model_validate(
        {
            "data_dir": str(tmp_path / "own"),
            "nodes": [{"name": "node-0", "agent_url": "http://127.0.0.1:1"}],
            "jobs": [{"name": "demo", "world_size": 3, "autostart": False}],
        }
    )


def left_behind(tmp_path: Path, incident: Incident) -> None:
    store = SqliteStore(tmp_path / "own")
    store.save(incident)
    store.close()


def test_an_incident_without_a_verdict_is_dismissed_and_detected_anew(world: World, tmp_path: Path) -> None:
    left_behind(tmp_path, INCIDENT)
    service = Service(settings(tmp_path), engine=world.engine, clock=world.clock)
    service.start()
    service.stop()
    found = service.store.get(INCIDENT.id)
    assert found is not None
    assert found.state is IncidentState.DISMISSED
    assert found.notes == ("the service stopped while this was open",)


def test_a_recovery_of_nothing_that_is_known_goes_to_a_person(world: World, tmp_path: Path) -> None:
    left_behind(tmp_path, replace(INCIDENT, state=IncidentState.ACTING))
    service = Service(settings(tmp_path), engine=world.engine, clock=world.clock)
    service.start()
    service.stop()
    found = service.store.get(INCIDENT.id)
    assert found is not None
    assert found.state is IncidentState.ESCALATED


def test_own_numbers_are_exposed(world: World, tmp_path: Path) -> None:
    service = Service(settings(tmp_path), engine=world.engine, clock=world.clock)
    text = generate_latest(service.metrics.registry).decode()
    assert 'everstep_agent_up{node="node-0"} 0.0' in text
    assert service.problem() == "the monitor thread is not running"
    service.stop()


def test_cut_off_says_where_it_stood() -> None:
    closed = cut_off(replace(INCIDENT, state=IncidentState.VERIFYING), 20.0)
    assert closed.closed == pytest.approx(20.0)
    assert closed.notes == ("the service stopped while this was verifying",)
