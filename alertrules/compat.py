"""Recording rules that give other exporters' series our names, units and labels.

Load `generated/compat.yml` only where those exporters replace the native agent: for one GPU or port never run both.
"""

from __future__ import annotations

from everstep.alertrules.rule import Group, Recording
from everstep.core.metrics import METRIC_BY_NAME, TARGET_LABELS, Scope
from everstep.core.metrics.foreign import DCGM, DCGM_RENAMED, GPUD, NODE_EXPORTER, SLURM, Foreign


def _relabelled(expr: str, renamed: tuple[tuple[str, str], ...]) -> str:
    for theirs, ours in renamed:
        expr = f'label_replace({expr}, "{ours}", "$1", "{theirs}", "(.+)")'
    return expr


def _value(row: Foreign) -> str:
    expr = f'{row.theirs}{{device!~"{row.not_devices}"}}' if row.not_devices else row.theirs
    if row.plus:
        expr = f"({expr} + {row.plus})"
    if row.divided_by:
        expr = f"({expr} / {row.divided_by})"
    if row.factor == 1:
        return expr
    return f"{expr} * {row.factor:.0f}" if row.factor > 1 else f"{expr} / {1 / row.factor:.0f}"


def _kept(row: Foreign) -> list[str]:
    """Labels that the result keeps: target labels and those of our metric that the mapping does not set itself."""
    fixed = {name for name, _ in row.labels}
    scope = ("cluster",) if row.ours == "everstep_cluster_gpus" else TARGET_LABELS
    return [*scope, *(name for name in METRIC_BY_NAME[row.ours].label_names if name not in fixed)]


def _expr(row: Foreign, renamed: tuple[tuple[str, str], ...]) -> str:
    """The aggregation drops their labels and collapses duplicate series of one entity."""
    return f"max by ({', '.join(_kept(row))}) (\n  {_relabelled(_value(row), (*renamed, *row.renamed))}\n)"


def recordings(rows: tuple[Foreign, ...], renamed: tuple[tuple[str, str], ...] = ()) -> tuple[Recording, ...]:
    """One rule a metric and label set; several sources of one are united, a GPU that two exporters see counts once."""
    exprs: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for row in rows:
        exprs.setdefault((row.ours, row.labels), []).append(_expr(row, renamed))
    return tuple(
        Recording(record=ours, labels=labels, expr=f"\n{_union(ours)}\n".join(parts))
        for (ours, labels), parts in exprs.items()
    )


def _union(ours: str) -> str:
    return "or on (cluster, uuid)" if METRIC_BY_NAME[ours].scope is Scope.GPU else "or"


GROUPS = (
    Group(name="everstep-compat-gpu", rules=recordings((*DCGM, *GPUD), DCGM_RENAMED)),
    Group(name="everstep-compat-node", rules=recordings(NODE_EXPORTER)),
    Group(name="everstep-compat-slurm", rules=recordings(SLURM)),
)
