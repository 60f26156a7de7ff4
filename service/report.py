"""One incident as one self-contained HTML page: what was seen, why it happened, what was done, that it is whole again.

Enters an incident and, where they are known, curves, marks and proofs of the run; leaves HTML without any outside
asset. Pure: the same values give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from everstep.core.actions import PlannedAction
from everstep.core.events import Incident
from everstep.core.faults import FAULT_BY_ID

TEMPLATES = Path(__file__).resolve().parent / "templates"
CHART_WIDTH, CHART_HEIGHT, CHART_PAD = 720.0, 240.0, 36.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line of the loss chart; `points` are (step, loss), non-finite losses break the line."""

    name: str
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment worth a line in the timeline, in seconds since the epoch."""

    at: float
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A demand on the recovery with what was seen."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known beyond the incident. `fault_step` is where the loss chart is marked, `budget` seconds a part."""

    title: str = ""
    origin: float | None = None
    marks: tuple[Mark, ...] = ()
    curves: tuple[Curve, ...] = ()
    fault_step: int | None = None
    resume_step: int | None = None
    budget: Mapping[str, float] | None = None
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    offset_s: float
    label: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartMark:
    x: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Coordinates of the inline SVG."""

    lines: tuple[ChartLine, ...]
    marks: tuple[ChartMark, ...]
    low: float
    high: float
    first: int
    last: int
    width: float = CHART_WIDTH
    height: float = CHART_HEIGHT
    pad: float = CHART_PAD


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    part: str
    seconds: float
    share: float


def render(incident: Incident, facts: RunFacts | None = None) -> str:
    """The page of one incident."""
    facts = facts or RunFacts()
    origin = facts.origin if facts.origin is not None else incident.onset
    return _template().render(
        title=facts.title or f"Incident {incident.id} of job {incident.job}",
        incident=incident,
        first=incident.causes[0] if incident.causes else None,
        opened=_when(incident.opened),
        origin=origin,
        timeline=_timeline(incident, facts, origin),
        actions=[(done, _duration(done)) for done in incident.actions],
        chart=_chart(facts),
        budget=_budget(facts.budget or {}),
        proofs=facts.proofs,
    )


def render_quiet(title: str, facts: RunFacts) -> str:
    """The page of a run in which no incident opened."""
    return _template().render(
        title=title,
        incident=None,
        first=None,
        opened="",
        origin=facts.origin or 0.0,
        timeline=(),
        actions=(),
        chart=_chart(facts),
        budget=_budget(facts.budget or {}),
        proofs=facts.proofs,
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fault"] = _fault
    return environment.get_template("incident.html")


def _fault(fault: str) -> str:
    known = FAULT_BY_ID.get(fault)
    return fault if known is None else known.title


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _duration(done: PlannedAction) -> float | None:
    return None if done.started is None or done.ended is None else done.ended - done.started


def _timeline(incident: Incident, facts: RunFacts, origin: float) -> list[TimelineRow]:
    marks = [
        *facts.marks,
        *(
            Mark(
                at=anomaly.onset_earliest,
                label=f"onset: {anomaly.entity}",
                detail=f"{anomaly.metric}, within {max(0.0, anomaly.onset_latest - anomaly.onset_earliest):.2f} s",
            )
            for anomaly in incident.anomalies
        ),
        Mark(at=incident.opened, label="found", detail="incident opened"),
        *_optional(incident.diagnosed, "diagnosed", str(incident.causes[0].entity) if incident.causes else ""),
        *(
            mark
            for done in incident.actions
            for mark in _optional(done.started, f"{done.action.kind}: started", done.action.target)
        ),
        *(
            mark
            for done in incident.actions
            for mark in _optional(done.ended, f"{done.action.kind}: {done.outcome}", done.detail)
        ),
        *_optional(incident.recovered, "first good step", ""),
        *_optional(incident.closed, str(incident.state), "canary compared the first steps with those before"),
    ]
    ordered = sorted(marks, key=lambda mark: mark.at)
    return [TimelineRow(offset_s=mark.at - origin, label=mark.label, detail=mark.detail) for mark in ordered]


def _optional(at: float | None, label: str, detail: str) -> list[Mark]:
    return [] if at is None else [Mark(at=at, label=label, detail=detail)]


def _budget(parts: Mapping[str, float]) -> list[BudgetRow]:
    total = sum(parts.values())
    if total <= 0:
        return []
    return [BudgetRow(part=part, seconds=seconds, share=seconds / total) for part, seconds in parts.items()]


def _chart(facts: RunFacts) -> Chart | None:
    """None when fewer than two finite points are known."""
    finite = [point for curve in facts.curves for point in curve.points if math.isfinite(point[1])]
    if len(finite) < 2:
        return None
    first, last = min(step for step, _ in finite), max(step for step, _ in finite)
    low, high = min(loss for _, loss in finite), max(loss for _, loss in finite)

    def x(step: float) -> float:
        return CHART_PAD + (step - first) / max(1, last - first) * (CHART_WIDTH - 2 * CHART_PAD)

    def y(loss: float) -> float:
        return CHART_HEIGHT - CHART_PAD - (loss - low) / max(1e-12, high - low) * (CHART_HEIGHT - 2 * CHART_PAD)

    lines = []
    for curve in facts.curves:
        path, pen = [], "M"
        for step, loss in curve.points:
            if not math.isfinite(loss):
                pen = "M"
                continue
            path.append(f"{pen}{x(step):.1f} {y(loss):.1f}")
            pen = "L"
        lines.append(ChartLine(name=curve.name, path="".join(path)))
    places = [("fault", facts.fault_step), ("resumed from", facts.resume_step)]
    marks = tuple(ChartMark(x=x(step), label=f"{label} {step}") for label, step in places if step is not None)
    return Chart(lines=tuple(lines), marks=marks, low=low, high=high, first=first, last=last)
