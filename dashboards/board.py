"""What a board says, apart from how Grafana spells it: panels with queries, unit, thresholds and a description."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

COLUMNS = 24

SELECTORS = {
    "@cluster": 'cluster=~"$cluster"',
    "@job": 'cluster=~"$cluster",train_job=~"$job"',
    "@node": 'cluster=~"$cluster",node=~"$node"',
}
"""Written in queries as `metric{@job}`; what the template variables of every board stand for."""


class Kind(StrEnum):
    TIMESERIES = "timeseries"
    STAT = "stat"
    TABLE = "table"
    HEATMAP = "heatmap"
    TIMELINE = "state-timeline"
    NODE_GRAPH = "nodeGraph"


class Unit(StrEnum):
    """Grafana's unit ids that our base units map to."""

    NONE = "none"
    SHORT = "short"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    OPS = "ops"
    RATIO = "percentunit"
    SECONDS = "s"
    AGO = "dateTimeFromNow"
    WATTS = "watt"


GREEN = ((None, "green"),)


def limits(orange: float, red: float) -> tuple[tuple[float | None, str], ...]:
    """Thresholds for values that are bad when high."""
    return ((None, "green"), (orange, "orange"), (red, "red"))


def floors(red: float, orange: float) -> tuple[tuple[float | None, str], ...]:
    """Thresholds for values that are bad when low."""
    return ((None, "red"), (red, "orange"), (orange, "green"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A PromQL expression with `@` selectors and the legend of its series; `instant` asks for the newest value only."""

    expr: str
    legend: str = ""
    instant: bool = False

    @property
    def promql(self) -> str:
        expr = " ".join(self.expr.split())
        for name, selector in SELECTORS.items():
            expr = expr.replace(name, selector)
        return expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`renamed` gives columns of a table other names; `stacked` fills and stacks the series of a graph."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = Kind.TIMESERIES
    width: int = 8
    height: int = 8
    thresholds: tuple[tuple[float | None, str], ...] = GREEN
    low: float | None = None
    high: float | None = None
    stacked: bool = False
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    x: int
    y: int
    width: int
    height: int


def layout(panels: tuple[Panel, ...]) -> tuple[Place, ...]:
    """Left to right; a panel that does not fit starts a new line below the tallest of the line before.

    >>> def panel(width): return Panel(title="", description="", unit=Unit.NONE, queries=(), width=width)
    >>> [(place.x, place.y) for place in layout((panel(12), panel(12), panel(8)))]
    [(0, 0), (12, 0), (0, 8)]
    """
    places = []
    x = y = tallest = 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        places.append(Place(x=x, y=y, width=panel.width, height=panel.height))
        x += panel.width
        tallest = max(tallest, panel.height)
    return tuple(places)
