"""What the rooms of the supervisor share about this node, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from everstep.collector.fence import Fence
from everstep.collector.paths import NodePaths
from everstep.collector.records import RecordWatcher
from everstep.collector.workers import StoreProcess, WorkerTable
from everstep.core.settings import AgentSettings


@dataclass(slots=True, kw_only=True)
class NodeState:
    """Touched only in the agent's event loop. `wake` asks for a push at once."""

    settings: AgentSettings
    paths: NodePaths
    fence: Fence
    table: WorkerTable
    records: RecordWatcher
    wake: Callable[[], None]
    stores: dict[str, StoreProcess] = field(default_factory=dict)
    """One a job: that of its newest attempt."""
