"""The closed set of actions, and the plans made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ActionKind(StrEnum):
    WATCH = "watch"
    RETRY_IO = "retry_io"
    RESTART_IN_PLACE = "restart_in_place"
    RESTART_PROCESS = "restart_process"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    ISOLATE_NODE = "isolate_node"
    ROLLBACK_CHECKPOINT = "rollback_checkpoint"
    SKIP_BATCH = "skip_batch"
    RESCALE = "rescale"
    MIGRATE_STATE = "migrate_state"
    FIX_SERVICE = "fix_service"
    PAGE_HUMAN = "page_human"


ACTION_MEANING: dict[ActionKind, str] = {
    ActionKind.WATCH: "record and observe, no change",
    ActionKind.RETRY_IO: "repeat the failed read or write",
    ActionKind.RESTART_IN_PLACE: "restart inside the living process",
    ActionKind.RESTART_PROCESS: "restart the process group on the same nodes",
    ActionKind.RESTART_APP: "restart the application on the same nodes (contained error)",
    ActionKind.RESET_GPU: "drain and reset the GPU, verify",
    ActionKind.ISOLATE_NODE: "take the node out, use a spare if there is one",
    ActionKind.ROLLBACK_CHECKPOINT: "resume from the last verified checkpoint",
    ActionKind.SKIP_BATCH: "resume while skipping the offending data",
    ActionKind.RESCALE: "continue with fewer nodes, or move the job",
    ActionKind.MIGRATE_STATE: "move a rank and its state to another node",
    ActionKind.FIX_SERVICE: "repair a service or configuration",
    ActionKind.PAGE_HUMAN: "page a person, no automatic change to nodes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What to do to whom; `target` is an entity as `kind name` or a job name."""

    kind: ActionKind
    target: str
    params: dict[str, Any] = field(default_factory=dict)


class Outcome(StrEnum):
    PLANNED = "planned"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction:
    """An action with what became of it; times in seconds since the epoch."""

    action: Action
    outcome: Outcome = Outcome.PLANNED
    started: float | None = None
    ended: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Ordered actions with the reason; `refused` names the guard-rail that stopped an action, if any did."""

    reason: str
    actions: tuple[Action, ...]
    refused: tuple[str, ...] = ()
    needs_approval: bool = False
