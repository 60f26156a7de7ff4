"""What a row of the fault table says; the rows live in the sibling modules, the table in the package itself."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.actions import ActionKind
from everstep.core.events import Direction, EntityKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One sign of a fault: a metric of the metric table, the direction it goes, and the labels that narrow it.

    `absent_ok` marks a sign that may be missing although the fault is there (XID 79 of a GPU that fell off the bus).
    """

    metric: str
    direction: Direction
    labels: tuple[tuple[str, str], ...] = ()
    note: str = ""
    absent_ok: bool = False

    @property
    def selector(self) -> str:
        """As a PromQL selector.

        >>> Symptom(metric="everstep_gpu_up", direction=Direction.LOW, labels=(("gpu", "0"),)).selector
        'everstep_gpu_up{gpu="0"}'
        """
        inner = ",".join(f'{name}="{value}"' for name, value in self.labels)
        return f"{self.metric}{{{inner}}}" if inner else self.metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row of the fault table.

    `root_kind` lists the kinds of entity that can be the culprit, likeliest first. `severity` 1 stops the job, 2 slows
    it or damages the result, 3 is latent or about monitoring only. `symptoms` stand in the order in which they appear.
    `default_actions` stand in order of preference; `remedy` says in words how they combine. `software` verdicts evict
    nobody, `monitoring` verdicts change nothing at all. `prior_per_gpu_hour` is explained at `faults.FAULT_CLASSES`.
    """

    id: str
    name: str
    root_kind: tuple[EntityKind, ...]
    severity: int
    symptoms: tuple[Symptom, ...]
    propagation: tuple[str, ...]
    default_actions: tuple[ActionKind, ...]
    remedy: str
    forbidden: str
    prior_per_gpu_hour: float
    software: bool = False
    monitoring: bool = False

    @property
    def title(self) -> str:
        """For people: the name in words, and the id where it says more."""
        words = self.name.replace("_", " ")
        return words if words.lower() == self.id.lower() else f"{words} ({self.id})"

    @property
    def evicts(self) -> bool:
        """Whether the default remedy may take a node out."""
        return ActionKind.ISOLATE_NODE in self.default_actions


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultClass:
    """A rate of the mature fleet that several faults share evenly; `interrupting` ones stop the job."""

    name: str
    faults: tuple[str, ...]
    per_gpu_hour: float
    interrupting: bool
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class XidPolicy:
    """What one XID code means and leads to; no code is fatal without an action.

    `actions` are in order of preference. `fault` is None for codes that are no hardware fault. `application` codes
    never isolate a node by themselves. `unverified` meanings rest on general knowledge.
    """

    xid: int
    meaning: str
    policy: str
    actions: tuple[ActionKind, ...]
    fault: str | None = None
    application: bool = False
    unverified: bool = False

    @property
    def fatal(self) -> bool:
        """Whether the code by itself leads to an action on the GPU or the node."""
        return not self.application and self.actions != (ActionKind.WATCH,)
