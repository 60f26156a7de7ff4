"""Every verdict to its plan; the ladder; what the guard-rails refuse. Pure values, no cluster."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.core.actions import Action, ActionKind, Outcome, Plan, PlannedAction
from everstep.core.engine import Attempt, ClusterSnapshot, NodeStatus, RankPlacement
from everstep.core.events import Anomaly, Direction, Entity, EntityKind, Incident, RootCause
from everstep.core.faults import VERDICTS
from everstep.core.settings import RecoverySettings
from everstep.core.topology import Node, Topology
from everstep.recovery.policy import decide
from everstep.recovery.state import ControllerState

NOW = 10_000.0
NAMES = tuple(f"node-{index}" for index in range(6))
TOPOLOGY = Topology.of([Node(name=name, spare=index >= 3) for index, name in enumerate(NAMES)])
ATTEMPT = Attempt(
    job="demo", number=1, placements=tuple(RankPlacement(rank=r, node=f"node-{r}", local_rank=0) for r in range(3))
)
RANK = Entity(kind=EntityKind.RANK, name="demo/1")
NODE = Entity(kind=EntityKind.NODE, name="node-1")


def cause(entity: Entity, fault: str, confidence: float = 0.9) -> RootCause:
    return RootCause(entity=entity, fault=fault, confidence=confidence)


def incident(*causes: RootCause, name: str = "now", at: float = NOW, **changes: Any) -> Incident:
    return Incident(id=name, job="demo", attempt=1, opened=at, onset=at, causes=causes, **changes)


def took(kind: ActionKind, target: str, *, at: float, outcome: Outcome = Outcome.SUCCEEDED, **params: Any) -> Incident:
    """An earlier incident in which this was done."""
    action = PlannedAction(action=Action(kind=kind, target=target, params=params), outcome=outcome, started=at)
    return incident(name=f"{kind}-{target}-{at}", at=at, actions=(action,))


def restarted(rank: int, node: str, *, ago_s: float = 600.0) -> Incident:
    return took(ActionKind.RESTART_PROCESS, f"rank demo/{rank}", at=NOW - ago_s, node=node)


def state(
    *history: Incident,
    cordoned: tuple[str, ...] = (),
    away: tuple[str, ...] = (),
    names: tuple[str, ...] = NAMES,
    **settings: Any,
) -> ControllerState:
    nodes = {
        name: NodeStatus(name=name, reachable=name not in away, cordoned=name in cordoned, detail="refused")
        for name in names
    }
    return ControllerState(
        now=NOW,
        attempt=ATTEMPT,
        snapshot=ClusterSnapshot(at=NOW, nodes=nodes),
        topology=TOPOLOGY,
        settings=RecoverySettings(**settings),
        history=history,
    )


def steps(plan: Plan) -> list[tuple[str, str]]:
    return [(action.kind.value, action.target) for action in plan.actions]


def kinds(plan: Plan) -> list[str]:
    return [action.kind.value for action in plan.actions]


ROLLBACK = ("rollback_checkpoint", "job demo")
PAGE = ("page_human", "job demo")


@pytest.mark.parametrize(
    ("entity", "fault", "expected"),
    [
        (RANK, "SOFTWARE", [("restart_process", "rank demo/1"), ROLLBACK]),
        (RANK, "F25", [("restart_process", "rank demo/1"), ROLLBACK]),
        (NODE, "F18", [("isolate_node", "node node-1"), ROLLBACK]),
        (Entity(kind=EntityKind.BATCH, name="demo/57"), "F28", [("skip_batch", "batch demo/57"), ROLLBACK]),
        (Entity(kind=EntityKind.JOB, name="demo"), "F28", [("restart_process", "job demo"), ROLLBACK]),
        (RANK, "F12", [("migrate_state", "rank demo/1")]),
        (RANK, "F30", [("isolate_node", "node node-1"), ROLLBACK]),
        (Entity(kind=EntityKind.GPU, name="node-1/0"), "F01", [("isolate_node", "node node-1"), ROLLBACK]),
        (Entity(kind=EntityKind.GPU, name="node-1/0"), "F04", [("isolate_node", "node node-1"), ROLLBACK]),
        (Entity(kind=EntityKind.GPU, name="node-1/0"), "F03", [("restart_process", "gpu node-1/0"), ROLLBACK]),
        (Entity(kind=EntityKind.GPU, name="node-1/0"), "F05", [("watch", "gpu node-1/0")]),
        (Entity(kind=EntityKind.GPU, name="elsewhere/0"), "F01", [PAGE]),
        (Entity(kind=EntityKind.PROCESS, name="demo/1"), "F17", [("restart_process", "process demo/1"), ROLLBACK]),
        (Entity(kind=EntityKind.JOB, name="demo"), "F26", [("restart_process", "job demo"), ROLLBACK]),
        (NODE, "F31", [("watch", "node node-1")]),
        (Entity(kind=EntityKind.MOUNT, name="scratch"), "F24", [PAGE]),
        (Entity(kind=EntityKind.MOUNT, name="scratch"), "F21", [PAGE]),
        (Entity(kind=EntityKind.BATCH, name="demo/57"), "F27", [("watch", "batch demo/57")]),
        (Entity(kind=EntityKind.JOB, name="demo"), "F29", [PAGE]),
        (NODE, "F19", [("fix_service", "node node-1"), PAGE]),
        (Entity(kind=EntityKind.LEAF, name="leaf-0"), "F15", [PAGE]),
        (Entity(kind=EntityKind.RACK, name="rack-0"), "F10", [PAGE]),
        (Entity(kind=EntityKind.JOB, name="demo"), "UNKNOWN", [("restart_process", "job demo"), ROLLBACK]),
        (Entity(kind=EntityKind.JOB, name="demo"), "F99", [("restart_process", "job demo"), ROLLBACK]),
    ],
)
def test_first_plan(entity: Entity, fault: str, expected: list[tuple[str, str]]) -> None:
    assert steps(decide(incident(cause(entity, fault)), state())) == expected


def test_without_a_cause_the_job_is_restarted() -> None:
    assert kinds(decide(incident(), state())) == ["restart_process", "rollback_checkpoint"]


@pytest.mark.parametrize("fault", [fault.id for fault in VERDICTS])
@pytest.mark.parametrize("kind", list(EntityKind))
def test_every_verdict_on_every_entity_has_a_plan(fault: str, kind: EntityKind) -> None:
    plan = decide(incident(cause(Entity(kind=kind, name="demo/1"), fault)), state())
    assert plan.actions
    starting = [one for one in plan.actions if one.kind not in {ActionKind.ROLLBACK_CHECKPOINT, ActionKind.PAGE_HUMAN}]
    assert len(starting) <= 1
    without = ControllerState(
        now=NOW,
        attempt=None,
        snapshot=ClusterSnapshot(at=NOW, nodes={}),
        topology=TOPOLOGY,
        settings=RecoverySettings(),
    )
    assert decide(incident(cause(Entity(kind=kind, name="x"), fault)), without).actions


def test_params_that_the_steps_need() -> None:
    hang = decide(incident(cause(RANK, "F25")), state()).actions[0]
    assert hang.params == {"node": "node-1", "stacks": "dump"}
    slow = decide(incident(cause(RANK, "F12")), state()).actions[0]
    assert slow.params == {"rank": 1, "from": "node-1", "to": "node-3"}
    batch = decide(incident(cause(Entity(kind=EntityKind.BATCH, name="demo/57"), "F28")), state()).actions[0]
    assert batch.params == {"batch": 57}


def test_corruption_in_silence_rolls_back_before_its_onset() -> None:
    bad = Anomaly(
        entity=RANK,
        metric="everstep_train_nonfinite_steps_total",
        onset_earliest=0,
        onset_latest=1,
        score=2,
        direction=Direction.HIGH,
        detector="nonfinite",
        observed=1,
        expected=0,
        evidence={"step": 41, "batch": 40},
    )
    plan = decide(incident(cause(RANK, "F30"), anomalies=(bad,)), state())
    assert plan.actions[1].params == {"before_step": 41}


def test_a_damaged_checkpoint_keeps_the_remedy_of_what_stopped_the_job() -> None:
    checkpoint = cause(Entity(kind=EntityKind.CHECKPOINT, name="demo/step-40"), "F23")
    rollback = ("rollback_checkpoint", "checkpoint demo/step-40")
    assert steps(decide(incident(checkpoint, cause(RANK, "SOFTWARE")), state())) == [
        ("restart_process", "rank demo/1"),
        rollback,
    ]
    assert steps(decide(incident(checkpoint, cause(NODE, "F18")), state())) == [
        ("isolate_node", "node node-1"),
        rollback,
    ]
    assert steps(decide(incident(checkpoint), state())) == [("restart_process", "job demo"), rollback]


def test_second_failure_on_the_same_node_concludes_the_node() -> None:
    plan = decide(incident(cause(RANK, "SOFTWARE")), state(restarted(1, "node-1")))
    assert steps(plan)[0] == ("isolate_node", "node node-1")


def test_failures_on_different_nodes_conclude_software() -> None:
    history = (restarted(1, "node-1"), restarted(1, "node-4", ago_s=300.0))
    plan = decide(incident(cause(RANK, "SOFTWARE")), state(*history))
    assert kinds(plan) == ["page_human"]
    plan = decide(incident(cause(RANK, "SOFTWARE")), state(restarted(1, "node-4")))
    assert kinds(plan) == ["restart_process", "rollback_checkpoint"]


def test_other_ranks_other_jobs_and_old_failures_do_not_count() -> None:
    assert kinds(decide(incident(cause(RANK, "SOFTWARE")), state(restarted(2, "node-1"))))[0] == "restart_process"
    old = restarted(1, "node-1", ago_s=4000.0)
    assert kinds(decide(incident(cause(RANK, "SOFTWARE")), state(old)))[0] == "restart_process"


def test_never_the_same_action_a_third_time() -> None:
    job = cause(Entity(kind=EntityKind.JOB, name="demo"), "UNKNOWN")
    history = [took(ActionKind.RESTART_PROCESS, "job demo", at=NOW - ago) for ago in (900.0, 300.0)]
    plan = decide(incident(job), state(*history))
    assert kinds(plan) == ["page_human"]
    assert plan.refused == ("restart_process of job demo was tried 2 times within an hour",)
    assert kinds(decide(incident(job), state(history[0])))[0] == "restart_process"


def test_actions_that_were_not_carried_out_do_not_count() -> None:
    history = [
        took(ActionKind.RESTART_PROCESS, "job demo", at=NOW - ago, outcome=outcome)
        for ago, outcome in ((900.0, Outcome.SKIPPED), (300.0, Outcome.REFUSED))
    ]
    job = cause(Entity(kind=EntityKind.JOB, name="demo"), "UNKNOWN")
    assert kinds(decide(incident(job), state(*history)))[0] == "restart_process"


def test_the_restart_breaker() -> None:
    history = [restarted(rank, f"node-{rank}", ago_s=100.0 + rank) for rank in (0, 2)]
    plan = decide(incident(cause(RANK, "SOFTWARE")), state(*history, max_restarts_per_hour=2))
    assert kinds(plan) == ["page_human"]
    assert plan.refused == ("2 restarts within an hour, 2 are allowed",)


def test_the_cap_of_isolations_an_hour() -> None:
    history = [
        took(ActionKind.ISOLATE_NODE, f"node node-{index}", at=NOW - 60, node=f"node-{index}") for index in (4, 5)
    ]
    plan = decide(incident(cause(NODE, "F18")), state(*history, away=("node-1",)))
    assert kinds(plan) == ["page_human"]
    assert plan.refused == ("2 nodes were isolated within an hour, 2 are allowed",)
    again = took(ActionKind.ISOLATE_NODE, "node node-1", at=NOW - 60, node="node-1")
    assert kinds(decide(incident(cause(NODE, "F18")), state(history[0], again, away=("node-1",))))[0] == "isolate_node"


def test_never_more_than_half_of_the_pool() -> None:
    plan = decide(incident(cause(NODE, "F18")), state(cordoned=("node-3", "node-4", "node-0"), away=("node-1",)))
    assert kinds(plan) == ["page_human"]
    assert "4 of 6 nodes would be isolated, a share of 0.5 is allowed" in plan.refused
    fine = decide(incident(cause(NODE, "F18")), state(cordoned=("node-3", "node-4"), away=("node-1",)))
    assert kinds(fine)[0] == "isolate_node"


def test_a_network_fault_isolates_only_when_it_comes_twice() -> None:
    nic = cause(Entity(kind=EntityKind.NIC, name="node-1/mlx5_0"), "F13")
    plan = decide(incident(nic), state())
    assert kinds(plan) == ["page_human"]
    assert plan.refused == ("one nic_down alone isolates nothing; a second within 5 minutes would",)
    assert kinds(decide(incident(nic), state(incident(nic, name="before", at=NOW - 200))))[0] == "isolate_node"
    assert kinds(decide(incident(nic), state(incident(nic, name="long ago", at=NOW - 400)))) == ["page_human"]


def test_no_spare_pages_or_shrinks() -> None:
    few = NAMES[:3]
    plan = decide(incident(cause(NODE, "F18")), state(names=few, away=("node-1",)))
    assert kinds(plan) == ["page_human"]
    assert plan.refused == ("no free node can take over the rank of node-1",)
    plan = decide(incident(cause(NODE, "F18")), state(names=few, away=("node-1",), allow_rescale=True))
    assert kinds(plan) == ["rescale", "rollback_checkpoint"]
    assert kinds(decide(incident(cause(RANK, "F12")), state(names=few))) == ["page_human"]


def test_what_nodes_share_is_left_when_it_took_nodes_away() -> None:
    leaf = cause(Entity(kind=EntityKind.LEAF, name="leaf-0"), "F16")
    plan = decide(incident(leaf), state(away=("node-0", "node-1")))
    assert kinds(plan) == ["rescale", "rollback_checkpoint", "page_human"]
    assert kinds(decide(incident(leaf), state())) == ["page_human"]
    assert kinds(decide(incident(leaf), state(away=("node-0", "node-1", "node-2", "node-3")))) == ["page_human"]


def test_approval_is_asked_for_changes_only() -> None:
    assert decide(incident(cause(RANK, "SOFTWARE")), state(approval=True)).needs_approval
    assert not decide(incident(cause(NODE, "F31")), state(approval=True)).needs_approval
    assert not decide(incident(cause(RANK, "SOFTWARE")), state()).needs_approval
