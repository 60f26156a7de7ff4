"""The rules as data: which fact speaks for which (entity, fault), what that fault explains, what speaks against it.

Numbers are log-likelihood ratios in nats, chosen by hand: 9 is proof short of certainty, 5 strong, 2 a hint.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from everstep.rca.facts import Fact


class Root(StrEnum):
    """Whom a rule accuses, seen from the anomaly's entity."""

    SELF = "self"
    NODE = "node"
    PROCESS = "process"
    BATCH = "batch"
    JOB = "job"
    MOUNT = "mount"
    CHECKPOINT = "checkpoint"
    LAGGARD = "laggard"


class Scope(StrEnum):
    """Where an explained anomaly may stand, seen from the accused."""

    SELF = "self"
    BELOW = "below"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """`fact` is what one expects to see when `root` has `fault`."""

    fact: Fact
    fault: str
    root: Root
    llr: float
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explains:
    """Victims: when `fault` is the cause, `facts` within `scope` need no other cause."""

    fault: str
    facts: frozenset[Fact]
    scope: Scope


SUPPORTS: tuple[Support, ...] = (
    Support(fact=Fact.KILLED, fault="SOFTWARE", root=Root.SELF, llr=8, rule="a worker died by a signal"),
    Support(fact=Fact.ABORTED, fault="SOFTWARE", root=Root.SELF, llr=5, rule="a worker aborted"),
    Support(fact=Fact.EXCEPTION, fault="SOFTWARE", root=Root.SELF, llr=5, rule="a worker ended with an error"),
    Support(fact=Fact.FENCED, fault="SOFTWARE", root=Root.SELF, llr=3, rule="a newer attempt fenced this worker"),
    Support(fact=Fact.KILLED, fault="F17", root=Root.PROCESS, llr=2, rule="the kernel may have killed it for memory"),
    Support(fact=Fact.OUT_OF_MEMORY, fault="F17", root=Root.PROCESS, llr=9, rule="a worker ran out of memory"),
    Support(fact=Fact.DISK_FULL, fault="F24", root=Root.MOUNT, llr=12, rule="a write failed for want of space"),
    Support(fact=Fact.CHECKPOINT_EXIT, fault="F23", root=Root.CHECKPOINT, llr=9, rule="state could not be loaded"),
    Support(fact=Fact.CHECKPOINT_DAMAGED, fault="F23", root=Root.SELF, llr=12, rule="checksums disagree"),
    Support(fact=Fact.STOPPED, fault="F25", root=Root.SELF, llr=8, rule="a worker stands still, the rest wait for it"),
    Support(fact=Fact.STALLED, fault="F25", root=Root.LAGGARD, llr=5, rule="one rank lags in a stalled job"),
    Support(fact=Fact.STALLED, fault="F25", root=Root.JOB, llr=4, rule="no step within the learned deadline"),
    Support(fact=Fact.NO_FIRST_STEP, fault="F26", root=Root.JOB, llr=6, rule="no first step within the start deadline"),
    Support(fact=Fact.NODE_REFUSED, fault="F18", root=Root.SELF, llr=9, rule="nobody answers on the node"),
    Support(fact=Fact.NODE_SILENT, fault="F18", root=Root.SELF, llr=8, rule="the node does not answer in time"),
    Support(fact=Fact.GPU_LOST, fault="F01", root=Root.SELF, llr=8, rule="a GPU does not answer, the job stands"),
    Support(fact=Fact.GPU_LOST, fault="F02", root=Root.SELF, llr=5, rule="reads of the GPU hang or fail"),
    Support(fact=Fact.TELEMETRY, fault="F18", root=Root.NODE, llr=1, rule="the node's series went away"),
    Support(fact=Fact.TELEMETRY, fault="F31", root=Root.NODE, llr=6, rule="a series vanished or froze"),
    Support(fact=Fact.NODE_ANSWERS, fault="F31", root=Root.NODE, llr=6, rule="the agent answers but does not push"),
    Support(fact=Fact.NONFINITE_INPUT, fault="F28", root=Root.BATCH, llr=10, rule="the input itself was not finite"),
    Support(fact=Fact.NONFINITE_SHARED, fault="F28", root=Root.BATCH, llr=7, rule="several ranks saw it in one step"),
    Support(fact=Fact.NONFINITE_ALONE, fault="F28", root=Root.BATCH, llr=3, rule="a bad batch can hit one rank"),
    Support(fact=Fact.NONFINITE_ALONE, fault="F30", root=Root.SELF, llr=7, rule="one rank alone, its input was finite"),
    Support(fact=Fact.NONFINITE_EXIT, fault="F28", root=Root.JOB, llr=5, rule="a worker gave up on non-finite values"),
    Support(fact=Fact.SLOW, fault="F12", root=Root.SELF, llr=8, rule="one rank computes slower than its peers"),
    Support(fact=Fact.SLOW, fault="F19", root=Root.NODE, llr=4, rule="something else takes the node's CPU"),
    Support(fact=Fact.PEER_LOST, fault="UNKNOWN", root=Root.JOB, llr=5, rule="a peer was lost and none is named"),
)

_PEERS_END = frozenset({Fact.PEER_LOST, Fact.EXCEPTION, Fact.ABORTED, Fact.STALLED, Fact.NO_FIRST_STEP})
_ENDS = _PEERS_END | {Fact.KILLED, Fact.STOPPED, Fact.NONFINITE_EXIT, Fact.CHECKPOINT_EXIT, Fact.TELEMETRY}
_NODE_GONE = frozenset({Fact.NODE_REFUSED, Fact.NODE_SILENT})
_NUMBERS = frozenset({Fact.NONFINITE_INPUT, Fact.NONFINITE_SHARED, Fact.NONFINITE_ALONE, Fact.NONFINITE_EXIT})

EXPLAINS: tuple[Explains, ...] = (
    Explains(fault="SOFTWARE", facts=_PEERS_END, scope=Scope.JOB),
    Explains(fault="F17", facts=_PEERS_END, scope=Scope.JOB),
    Explains(
        fault="F23",
        facts=frozenset({Fact.CHECKPOINT_DAMAGED, Fact.CHECKPOINT_EXIT, *_PEERS_END}),
        scope=Scope.JOB,
    ),
    Explains(fault="F24", facts=frozenset({Fact.DISK_FULL, Fact.CHECKPOINT_EXIT, *_PEERS_END}), scope=Scope.JOB),
    Explains(fault="F25", facts=frozenset({Fact.STALLED, Fact.NO_FIRST_STEP}), scope=Scope.JOB),
    Explains(fault="F26", facts=frozenset({Fact.NO_FIRST_STEP}), scope=Scope.JOB),
    Explains(fault="F28", facts=_NUMBERS | _PEERS_END, scope=Scope.JOB),
    Explains(fault="F30", facts=_NUMBERS | _PEERS_END, scope=Scope.JOB),
    Explains(fault="F18", facts=_ENDS | {Fact.SLOW, Fact.SYMPTOM}, scope=Scope.BELOW),
    Explains(fault="F18", facts=_PEERS_END, scope=Scope.JOB),
    Explains(fault="F16", facts=_ENDS | _NODE_GONE | {Fact.SYMPTOM}, scope=Scope.BELOW),
    Explains(fault="F16", facts=_PEERS_END, scope=Scope.JOB),
    Explains(fault="F11", facts=_ENDS | _NODE_GONE | {Fact.SYMPTOM}, scope=Scope.BELOW),
    Explains(fault="F11", facts=_PEERS_END, scope=Scope.JOB),
    Explains(fault="F19", facts=frozenset({Fact.SLOW}), scope=Scope.BELOW),
    Explains(fault="F31", facts=frozenset({Fact.TELEMETRY, Fact.NODE_ANSWERS}), scope=Scope.BELOW),
    Explains(fault="UNKNOWN", facts=frozenset({Fact.PEER_LOST, Fact.STALLED}), scope=Scope.JOB),
)

BY_DEFAULT: tuple[Explains, ...] = (
    Explains(fault="", facts=_ENDS, scope=Scope.BELOW),
    Explains(fault="", facts=_PEERS_END, scope=Scope.JOB),
)
"""What any other fault that stops a job explains."""

UNEXPLAINED: dict[Fact, float] = {
    Fact.CHECKPOINT_DAMAGED: 9,
    Fact.NODE_REFUSED: 6,
    Fact.NODE_SILENT: 5,
    Fact.GPU_LOST: 5,
    Fact.NONFINITE_INPUT: 5,
    Fact.NONFINITE_SHARED: 4,
    Fact.NONFINITE_ALONE: 4,
    Fact.KILLED: 4,
    Fact.STOPPED: 4,
    Fact.OUT_OF_MEMORY: 4,
    Fact.DISK_FULL: 4,
    Fact.CHECKPOINT_EXIT: 3,
    Fact.NONFINITE_EXIT: 3,
    Fact.EXCEPTION: 3,
    Fact.ABORTED: 3,
    Fact.SLOW: 2,
    Fact.STALLED: 2,
    Fact.NO_FIRST_STEP: 2,
    Fact.PEER_LOST: 2,
}
"""Price of leaving a fact unexplained, once a fact and with the logarithm of how often; all others cost `OTHERWISE`."""
OTHERWISE = 1.0

EXPECTED: dict[str, tuple[tuple[Fact, ...], float, str]] = {
    "F18": ((Fact.NODE_REFUSED, Fact.NODE_SILENT), 4.0, "the agent's silence"),
    "F25": ((Fact.STOPPED, Fact.STALLED, Fact.NO_FIRST_STEP), 2.0, "a stopped process or a missed deadline"),
}
"""Signs that a fault must show: absent, they cost so much and stand in the report as missing."""

TELLTALE: dict[str, str] = {
    "F01": "everstep_gpu_up of the node's GPUs",
    "F12": "a probe benchmark of the GPU",
    "F17": "everstep_host_oom_kills_total of the node",
    "F19": "everstep_pressure_stalled_seconds_total of the node",
    "F18": "an answer of the node's agent",
    "F16": "everstep_net_port_errors_total of the leaf",
    "F11": "everstep_psu_input_ok of the rack",
    "F23": "a checksum of the checkpoint's copies",
    "F24": "everstep_filesystem_available_ratio, bytes and inodes",
    "F25": "stacks and everstep_train_collective_sequence of all ranks",
    "F28": "a replay of the batch",
    "F30": "a replay of the step on another GPU",
    "F31": "a fresh sample of the series",
    "SOFTWARE": "the tail of the worker's log",
}
"""What would separate a fault from its rival."""

COUNTERS: tuple[tuple[str, frozenset[Fact], float], ...] = (
    ("F31", frozenset({Fact.STALLED, Fact.NO_FIRST_STEP}), -6.0),  # monitoring alone stops no step
    ("F30", frozenset({Fact.NONFINITE_INPUT}), -6.0),  # arithmetic is not to blame for what came in
)
"""Facts that speak against a fault wherever they were seen."""

CONTRADICTED = frozenset({Fact.GPU_LOST, Fact.STOPPED, Fact.NODE_REFUSED, Fact.NODE_SILENT, Fact.STALLED})
"""Reports that a step which ends later proves wrong; exits are not among them, for their status is certain."""
STEP_MARGIN_S = 2.0  # a step in flight may still end after the stop of a rank that had done its part
VICTIM_MARGIN_S = 5.0  # a victim does not fail earlier than this before its cause; clocks and pushes differ so much
EQUAL_FAILURES_LLR = 3.0  # two or three equal failures on different nodes: conclude software
CHILD_GONE_LLR = 6.0
CHILD_FINE_LLR = -2.5
TOGETHER_S = 10.0  # children of one shared parent fall silent within this
LEAF_LLR = 1.0  # nodes that vanish share a switch more often than a power feed
NEWEST_LLR = 4.0  # the newest damaged checkpoint is the one that mattered
SUMMED = frozenset({"F11", "F16", "F19"})
"""Faults of shared parents: each hit child counts; all others count a kind of fact once."""
TEMPERATURE = 2.0  # softens the scores into confidences, for the ratios are guesses
UNKNOWN_CONFIDENCE = 0.3  # highest confidence of not knowing
SYMPTOM_LLR = 2.5
XID_LLR = 7.0
ALERT_LLR = 7.0  # an alerting rule of the fault table held
EQUAL_FAILURES = frozenset({Fact.KILLED, Fact.ABORTED, Fact.EXCEPTION})
