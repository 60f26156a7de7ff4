from __future__ import annotations

from dataclasses import replace

from everstep.core.events import Anomaly, Direction
from everstep.detector.process import Worker, is_decisive, is_victim, judge_worker

WORKER = Worker(job="demo", rank=1, node="node-1", state="running", since=10.0, alive_at=20.0)


def judge(worker: Worker, now: float = 20.0) -> Anomaly | None:
    return judge_worker(worker, stopped_confirm_s=1.0, now=now)


def test_a_running_worker_is_fine() -> None:
    assert judge(WORKER) is None


def test_killed_is_decisive_at_once() -> None:
    killed = judge(replace(WORKER, state="killed", since=20.1, exit_code=-9, reason="signal"), now=20.1)
    assert killed is not None
    assert is_decisive(killed)
    assert killed.entity.name == "demo/1"
    assert killed.evidence == {"state": "killed", "exit_code": -9, "reason": "signal", "node": "node-1"}
    assert (killed.onset_earliest, killed.onset_latest) == (20.0, 20.1)


def test_an_abort_may_be_a_victims() -> None:
    aborted = judge(replace(WORKER, state="killed", since=20.1, exit_code=-6, reason="signal"), now=20.1)
    assert aborted is not None
    assert not is_decisive(aborted)


def test_stopped_must_last() -> None:
    stopped = replace(WORKER, state="stopped", since=20.0)
    assert judge(stopped, now=20.9) is None
    confirmed = judge(stopped, now=21.0)
    assert confirmed is not None
    assert is_decisive(confirmed)
    assert confirmed.direction is Direction.STOP


def test_a_lost_peer_makes_a_victim() -> None:
    victim = judge(replace(WORKER, state="exited", exit_code=78, reason="peer_lost"))
    assert victim is not None
    assert is_victim(victim)
    assert not is_decisive(victim)


def test_an_exit_waits_for_its_reason() -> None:
    exited = replace(WORKER, state="exited", since=20.0, exit_code=1)
    assert judge(exited, now=20.1) is None
    assert judge(exited, now=20.3) is not None


def test_orderly_ends_are_fine() -> None:
    for state, reason in (("exited", "success"), ("exited", "stopped_by_agent"), ("killed", "stopped_by_agent")):
        assert judge(replace(WORKER, state=state, reason=reason)) is None
