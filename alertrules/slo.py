"""Goodput as a service level: how fast the budget of unproductive GPU time burns, in four pairs of windows.

The pairs and factors are those widely used for error budgets (kubernetes-mixin, `config.libsonnet`): fast burns page,
slow ones write a ticket.
"""

from __future__ import annotations

from dataclasses import dataclass

from everstep.alertrules.recording import goodput_record
from everstep.alertrules.rule import Alert, Group
from everstep.core.actions import ActionKind

GOODPUT_OBJECTIVE = 0.95
"""Share of GPU-seconds that should be productive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    long: str
    short: str
    factor: float
    severity: str
    hold: str


BURNS = (
    Burn(long="1h", short="5m", factor=14.4, severity="critical", hold="2m"),
    Burn(long="6h", short="30m", factor=6, severity="critical", hold="15m"),
    Burn(long="1d", short="2h", factor=3, severity="warning", hold="1h"),
    Burn(long="3d", short="6h", factor=1, severity="warning", hold="3h"),
)


def _alert(burn: Burn) -> Alert:
    floor = round(1 - burn.factor * (1 - GOODPUT_OBJECTIVE), 6)
    return Alert(
        name="GoodputBurnRate",
        component="slo",
        severity=burn.severity,
        action=ActionKind.PAGE_HUMAN,
        labels=(("long", burn.long), ("short", burn.short)),
        expr=f"{goodput_record(burn.long)} < {floor:g}\nand\n{goodput_record(burn.short)} < {floor:g}",
        hold=burn.hold,
        summary="Goodput of {{ $labels.train_job }} is {{ $value | humanizePercentage }} over " + burn.long,
        description=f"The budget of {1 - GOODPUT_OBJECTIVE:.0%} lost GPU time burns {burn.factor:g} times too fast.",
    )


GROUPS = (Group(name="everstep-goodput", rules=tuple(_alert(burn) for burn in BURNS)),)
