"""What the in-memory store keeps, which is what every store must keep."""

from __future__ import annotations

from dataclasses import replace

from everstep.core.engine import Attempt
from everstep.core.events import Incident, IncidentState
from everstep.recovery.store import MemoryStore


def incident(name: str, job: str = "demo") -> Incident:
    return Incident(id=name, job=job, attempt=1, opened=0.0, onset=0.0)


def test_the_newest_word_on_an_incident_counts() -> None:
    store = MemoryStore()
    store.save(incident("a"))
    store.save(incident("b", job="other"))
    store.save(replace(incident("a"), state=IncidentState.RESOLVED))
    found = store.get("a")
    assert found is not None
    assert found.state is IncidentState.RESOLVED
    assert store.get("none") is None
    assert [one.id for one in store.incidents()] == ["a", "b"]
    assert [one.id for one in store.incidents("demo")] == ["a"]


def test_the_last_attempt_of_each_job() -> None:
    store = MemoryStore()
    assert store.last_attempt("demo") is None
    for number in (1, 2):
        store.save_attempt(Attempt(job="demo", number=number, placements=()))
    last = store.last_attempt("demo")
    assert last is not None
    assert last.number == 2


def test_the_audit_trail_keeps_order_and_copies() -> None:
    store = MemoryStore()
    detail = {"a": 1}
    store.audit(1.0, "decide", detail)
    detail["a"] = 2
    store.audit(2.0, "stop", {})
    assert store.audit_trail() == ((1.0, "decide", {"a": 1}), (2.0, "stop", {}))
