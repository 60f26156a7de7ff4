"""The table of subcommands; nothing of theirs is imported here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A subcommand: `attribute` of `module` is a function or a typer app; `extra` installs what it imports."""

    name: str
    module: str
    attribute: str
    summary: str
    extra: str


COMMANDS: tuple[Command, ...] = (
    Command(
        name="demo",
        module="everstep.cli.demo",
        attribute="demo",
        summary="Train a real job on this machine, break it, watch it heal.",
        extra="all",
    ),
    Command(
        name="serve",
        module="everstep.cli.serve",
        attribute="serve",
        summary="Run the service: detect, explain, recover.",
        extra="service",
    ),
    Command(
        name="agent",
        module="everstep.cli.agent",
        attribute="agent",
        summary="Run the agent of this node.",
        extra="agent",
    ),
    Command(
        name="train",
        module="everstep.cli.train",
        attribute="train",
        summary="Train through torchrun, without a controller.",
        extra="trainer",
    ),
    Command(
        name="config",
        module="everstep.cli.config",
        attribute="app",
        summary="Show or check the configuration.",
        extra="service",
    ),
    Command(
        name="doctor",
        module="everstep.cli.doctor",
        attribute="doctor",
        summary="Say what is missing here and how to get it.",
        extra="cli",
    ),
    Command(
        name="metrics",
        module="everstep.cli.metrics",
        attribute="app",
        summary="List the metrics; check which of the 27 a cluster has.",
        extra="cli",
    ),
    Command(
        name="rules",
        module="everstep.cli.rules",
        attribute="rules",
        summary="Write Prometheus rules and Alertmanager's configuration.",
        extra="cli",
    ),
    Command(
        name="dashboards",
        module="everstep.cli.dashboards",
        attribute="dashboards",
        summary="Write the Grafana dashboards.",
        extra="cli",
    ),
)
