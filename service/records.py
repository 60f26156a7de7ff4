"""Incidents and attempts as JSON and back; also the plain form that the HTTP API sends."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from everstep.core.actions import Action, ActionKind, Outcome, Plan, PlannedAction
from everstep.core.engine import Attempt, RankPlacement, ResumePoint
from everstep.core.events import (
    Anomaly,
    Direction,
    Entity,
    EntityKind,
    Evidence,
    Incident,
    IncidentState,
    RootCause,
    Standing,
)

Plain = dict[str, Any]


def plain(value: Any) -> Any:
    """A dataclass or container as strict JSON values: enums as their strings, NaN and infinities as strings."""
    if hasattr(value, "__dataclass_fields__"):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def dump(value: Incident | Attempt | Mapping[str, Any]) -> str:
    """For the store; Python's JSON, so that NaN survives the way back."""
    return json.dumps(value if isinstance(value, Mapping) else asdict(value), default=str)


def incident_from(text: str) -> Incident:
    """Raises `ValueError`, `KeyError` or `TypeError` on a record that this version cannot read."""
    data: Plain = json.loads(text)
    plan = data.pop("plan")
    return Incident(
        **{
            **data,
            "state": IncidentState(data["state"]),
            "anomalies": tuple(_anomaly(entry) for entry in data["anomalies"]),
            "causes": tuple(_cause(entry) for entry in data["causes"]),
            "actions": tuple(_planned(entry) for entry in data["actions"]),
            "notes": tuple(data["notes"]),
        },
        plan=None if plan is None else _plan(plan),
    )


def attempt_from(text: str) -> Attempt:
    """Raises `ValueError`, `KeyError` or `TypeError` on a record that this version cannot read."""
    data: Plain = json.loads(text)
    resume = data.pop("resume")
    return Attempt(
        **{
            **data,
            "placements": tuple(RankPlacement(**entry) for entry in data["placements"]),
            "skip_batches": tuple(data["skip_batches"]),
        },
        resume=None if resume is None else ResumePoint(**resume),
    )


def _entity(data: Plain) -> Entity:
    return Entity(kind=EntityKind(data["kind"]), name=data["name"])


def _anomaly(data: Plain) -> Anomaly:
    return Anomaly(**{**data, "entity": _entity(data["entity"]), "direction": Direction(data["direction"])})


def _cause(data: Plain) -> RootCause:
    chain = tuple(Evidence(**{**entry, "entity": _entity(entry["entity"])}) for entry in data["chain"])
    standing = Standing(data.get("standing", Standing.CAUSE))
    entity, missing = _entity(data["entity"]), tuple(data["missing"])
    return RootCause(**{**data, "entity": entity, "chain": chain, "missing": missing, "standing": standing})


def _action(data: Plain) -> Action:
    return Action(**{**data, "kind": ActionKind(data["kind"])})


def _planned(data: Plain) -> PlannedAction:
    return PlannedAction(**{**data, "action": _action(data["action"]), "outcome": Outcome(data["outcome"])})


def _plan(data: Plain) -> Plan:
    return Plan(
        **{
            **data,
            "actions": tuple(_action(entry) for entry in data["actions"]),
            "refused": tuple(data["refused"]),
        }
    )
