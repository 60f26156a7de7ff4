"""The faults that the demo can inject, and what each must lead to: the table that verdicts are derived from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from everstep.core.actions import ActionKind
from everstep.core.errors import EverstepError
from everstep.core.events import EntityKind

JOB = "demo"
REFERENCE_JOB = "reference"
WORLD_SIZE = 3
VICTIM_RANK = 1
NODES = ("node-0", "node-1", "node-2", "node-3")
SPARE = "node-3"


class DemoFault(StrEnum):
    KILL_PROCESS = "kill_process"
    HANG_PROCESS = "hang_process"
    KILL_NODE = "kill_node"
    NAN_LOSS = "nan_loss"
    SLOW_RANK = "slow_rank"
    CORRUPT_CHECKPOINT = "corrupt_checkpoint"
    NONE = "none"


ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What one fault must lead to; `culprit` None means that no incident may open.

    `moved` says that the victim rank must end on another node, `cordoned` that its old node must be out of service.
    """

    fault: DemoFault
    story: str
    culprit: EntityKind | None = None
    verdicts: tuple[str, ...] = ()
    actions: tuple[ActionKind, ...] = ()
    moved: bool = False
    cordoned: bool = False


_SCENARIOS = (
    Scenario(
        fault=DemoFault.KILL_PROCESS,
        story="SIGKILL of one worker",
        culprit=EntityKind.RANK,
        verdicts=("SOFTWARE",),
        actions=(ActionKind.RESTART_PROCESS, ActionKind.ROLLBACK_CHECKPOINT),
    ),
    Scenario(
        fault=DemoFault.HANG_PROCESS,
        story="SIGSTOP of one worker",
        culprit=EntityKind.RANK,
        verdicts=("F25",),
        actions=(ActionKind.RESTART_PROCESS, ActionKind.ROLLBACK_CHECKPOINT),
    ),
    Scenario(
        fault=DemoFault.KILL_NODE,
        story="one node dies: agent, warm parent and worker, and its memory with it",
        culprit=EntityKind.NODE,
        verdicts=("F18",),
        actions=(ActionKind.ISOLATE_NODE, ActionKind.ROLLBACK_CHECKPOINT),
        moved=True,
        cordoned=True,
    ),
    Scenario(
        fault=DemoFault.NAN_LOSS,
        story="a poisoned batch makes the loss NaN",
        culprit=EntityKind.BATCH,
        verdicts=("F28",),
        actions=(ActionKind.SKIP_BATCH, ActionKind.ROLLBACK_CHECKPOINT),
    ),
    Scenario(
        fault=DemoFault.SLOW_RANK,
        story="one rank computes 1.5 times slower",
        culprit=EntityKind.RANK,
        verdicts=("F12",),
        actions=(ActionKind.MIGRATE_STATE,),
        moved=True,
    ),
    Scenario(
        fault=DemoFault.CORRUPT_CHECKPOINT,
        story="the newest committed checkpoint is damaged in every copy, then a worker is killed",
        culprit=EntityKind.CHECKPOINT,
        verdicts=("F23",),
        actions=(ActionKind.RESTART_PROCESS, ActionKind.ROLLBACK_CHECKPOINT),
    ),
    Scenario(fault=DemoFault.NONE, story="nothing is injected: no incident may open"),
)

SCENARIOS: dict[DemoFault, Scenario] = {scenario.fault: scenario for scenario in _SCENARIOS}


def chosen(name: str) -> tuple[DemoFault, ...]:
    """The faults that a `--fault` value means. Raises `EverstepError` that lists the names."""
    if name == ALL:
        return tuple(SCENARIOS)
    try:
        return (DemoFault(name),)
    except ValueError as error:
        names = ", ".join((*(fault.value for fault in SCENARIOS), ALL))
        raise EverstepError(f"unknown fault {name!r}", mend=f"choose one of {names}") from error
