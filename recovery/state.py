"""What the policy decides on, and what a recovery carries from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from everstep.core.engine import Attempt, CheckpointCopy, ClusterSnapshot, ResumePoint
from everstep.core.events import Incident
from everstep.core.settings import RecoverySettings
from everstep.core.topology import Topology
from everstep.recovery.canary import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """The world as the policy sees it. `history` holds all other incidents, of every job, oldest first."""

    now: float
    attempt: Attempt | None
    snapshot: ClusterSnapshot
    topology: Topology
    settings: RecoverySettings
    history: tuple[Incident, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One round of one recovery: from the attempt `old` that broke to the attempt `new` that replaces it.

    `failure` is empty while all goes well. `tried` are resume points that could not be loaded or whose first
    steps were wrong in earlier rounds, `distrusted` the attempts that made those steps.
    """

    incident: Incident
    old: Attempt
    snapshot: ClusterSnapshot
    round: int = 1
    new: Attempt | None = None
    copies: tuple[CheckpointCopy, ...] = ()
    tried: tuple[ResumePoint, ...] = ()
    distrusted: tuple[int, ...] = ()
    reference: Reference = field(default_factory=Reference)
    stacks: Mapping[int, str] = field(default_factory=dict)
    failure: str = ""
