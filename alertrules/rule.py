"""What a rule says, and how it becomes YAML: labels from the fault table, runbook link from one function."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from everstep.core.actions import ActionKind
from everstep.core.faults import FAULT_BY_ID

RUNBOOK_BASE = "docs/runbooks"
DASHBOARD_OF = {
    "hardware": "everstep-gpu-node",
    "training": "everstep-training-job",
    "system": "everstep-network-storage",
    "service": "everstep-self",
    "slo": "everstep-scheduler-goodput",
}
"""Component to the uid of the dashboard that shows it."""

NO_FAULT = "none"
_SEVERITY_OF_FAULT = {1: "critical", 2: "warning", 3: "warning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    record: str
    expr: str
    labels: tuple[tuple[str, str], ...] = ()

    def to_yaml(self) -> dict[str, Any]:
        rule: dict[str, Any] = {"record": self.record, "expr": tidy(self.expr)}
        if self.labels:
            rule["labels"] = dict(self.labels)
        return rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alerting rule. Severity and action follow from the fault unless they are given.

    `hold` is Prometheus' `for` and `keep` its `keep_firing_for`; both are durations as Prometheus writes them.
    """

    name: str
    component: str
    expr: str
    summary: str
    description: str
    fault: str = NO_FAULT
    hold: str = "0m"
    keep: str = ""
    severity: str = ""
    action: ActionKind | None = None
    labels: tuple[tuple[str, str], ...] = ()

    def all_labels(self) -> dict[str, str]:
        fault = FAULT_BY_ID.get(self.fault)
        severity = self.severity or (_SEVERITY_OF_FAULT[fault.severity] if fault else "warning")
        action = self.action or (fault.default_actions[0] if fault else ActionKind.PAGE_HUMAN)
        return {
            "severity": severity,
            "component": self.component,
            "action": str(action),
            "fault": self.fault,
            **dict(self.labels),
        }

    def to_yaml(self, runbook_base: str) -> dict[str, Any]:
        rule: dict[str, Any] = {"alert": self.name, "expr": tidy(self.expr), "for": self.hold}
        if self.keep:
            rule["keep_firing_for"] = self.keep
        rule["labels"] = self.all_labels()
        rule["annotations"] = {
            "summary": self.summary,
            "description": self.description,
            "runbook_url": runbook_url(self.name, runbook_base),
            "dashboard_url": f"/d/{DASHBOARD_OF[self.component]}",
        }
        return rule


Rule = Recording | Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated together, in order; `interval` as Prometheus writes durations, empty for the default."""

    name: str
    rules: tuple[Rule, ...]
    interval: str = ""

    def to_yaml(self, runbook_base: str) -> dict[str, Any]:
        group: dict[str, Any] = {"name": self.name}
        if self.interval:
            group["interval"] = self.interval
        group["rules"] = [
            rule.to_yaml(runbook_base) if isinstance(rule, Alert) else rule.to_yaml() for rule in self.rules
        ]
        return group


def runbook_url(alert: str, base: str = RUNBOOK_BASE) -> str:
    """Where the runbook of an alert is; sites that publish the docs pass their own base.

    >>> runbook_url("GpuMissing", "https://docs.example.org/runbooks")
    'https://docs.example.org/runbooks/GpuMissing.md'
    """
    return f"{base.rstrip('/')}/{alert}.md"


def tidy(expr: str) -> str:
    return dedent(expr).strip()
