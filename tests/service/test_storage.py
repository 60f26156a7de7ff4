from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from everstep.core.actions import Action, ActionKind, Outcome, Plan, PlannedAction
from everstep.core.engine import Attempt, RankPlacement, ResumePoint
from everstep.core.errors import ConfigError
from everstep.core.events import (
    Anomaly,
    Direction,
    Entity,
    EntityKind,
    Evidence,
    Incident,
    IncidentState,
    RootCause,
)
from everstep.service.storage import FILE, SqliteStore

RANK = Entity(kind=EntityKind.RANK, name="demo/1")
ATTEMPT = Attempt(
    job="demo",
    number=2,
    placements=(RankPlacement(rank=0, node="node-0", local_rank=0),),
    resume=ResumePoint(step=40, tier="memory", attempt=1),
    skip_batches=(57,),
)


def incident() -> Incident:
    anomaly = Anomaly(
        entity=RANK,
        metric="everstep_worker_state",
        onset_earliest=1.0,
        onset_latest=1.5,
        score=2.0,
        direction=Direction.CHANGE,
        detector="process",
        observed=-9.0,
        expected=0.0,
        evidence={"state": "killed", "exit_code": -9},
    )
    link = Evidence(at=1.5, entity=RANK, metric="m", observed="killed", expected="running", rule="death by signal")
    action = Action(kind=ActionKind.RESTART_PROCESS, target="demo")
    return Incident(
        id="demo-1-abc",
        job="demo",
        attempt=1,
        opened=2.0,
        onset=1.5,
        state=IncidentState.ACTING,
        anomalies=(anomaly,),
        causes=(RootCause(entity=RANK, fault="SOFTWARE", confidence=0.9, chain=(link,), missing=("power",)),),
        plan=Plan(reason="software", actions=(action,), refused=("cap",)),
        actions=(PlannedAction(action=action, outcome=Outcome.SUCCEEDED, started=2.0, ended=3.0),),
        diagnosed=2.1,
        notes=("a note",),
    )


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.save(incident())
    store.save_attempt(ATTEMPT)
    store.audit(3.0, "stop", {"attempt": 1})
    store.save_learned("demo", 4.0, {"durations": [0.2]})
    store.close()
    again = SqliteStore(tmp_path)
    assert again.get("demo-1-abc") == incident()
    assert again.incidents("demo") == (incident(),)
    assert again.incidents("other") == ()
    assert again.last_attempt("demo") == ATTEMPT
    assert again.last_attempt("other") is None
    assert again.audit_trail() == [{"at": 3.0, "kind": "stop", "detail": {"attempt": 1}}]
    assert again.learned("demo") == {"durations": [0.2]}
    assert again.learned("other") == {}
    again.close()


def test_one_process_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(ConfigError, match="another everstep serve uses"):
        SqliteStore(tmp_path)
    store.close()
    SqliteStore(tmp_path).close()


def test_an_unusable_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write to data directory .* set service.data_dir"):
        SqliteStore(tmp_path / "file" / "data")


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(ConfigError, match="cannot use"):
        SqliteStore(tmp_path)
    with pytest.raises(ConfigError, match="cannot use"):  # the lock was let go
        SqliteStore(tmp_path)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    database = sqlite3.connect(tmp_path / FILE)
    database.execute("pragma user_version = 99")
    database.close()
    with pytest.raises(ConfigError, match="newer Everstep"):
        SqliteStore(tmp_path)


def test_a_full_disk_loses_nothing_that_fits_later(tmp_path: Path) -> None:
    failures = []
    store = SqliteStore(tmp_path, on_failure=lambda: failures.append(1))
    pages = store._database.execute("pragma page_count").fetchone()[0]
    store._database.execute(f"pragma max_page_count = {pages}")
    big = replace(incident(), notes=("x" * 100_000,))
    store.save(big)
    assert failures == [1]
    assert store.get(big.id) == big
    store._database.execute("pragma max_page_count = 100000")
    store.save_attempt(ATTEMPT)
    store.close()
    again = SqliteStore(tmp_path)
    assert again.get(big.id) == big
    assert again.last_attempt("demo") == ATTEMPT
    again.close()


def test_an_unreadable_record_does_not_hide_the_others(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.save(incident())
    store._database.execute("insert into incidents values ('odd', 'demo', 1, 'open', '{}')")
    store.close()
    again = SqliteStore(tmp_path)
    assert [found.id for found in again.incidents()] == ["demo-1-abc"]
    again.close()


@pytest.mark.parametrize("body", ["{garbage", "[]", "[1]", "null", "3", '"text"'])
def test_learned_state_that_cannot_be_read_is_learned_anew(tmp_path: Path, body: str) -> None:
    store = SqliteStore(tmp_path)
    store.save_learned("demo", 1.0, {"durations": [0.5]})
    store.close()
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("update learned set body = ?", (body,))
    store = SqliteStore(tmp_path)
    assert store.learned("demo") == {}
    store.close()
