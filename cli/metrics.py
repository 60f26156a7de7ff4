"""`everstep metrics`: the table of the metrics, and which of the 27 a Prometheus really has."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from everstep.core.metrics import METRICS, Metric
from everstep.core.metrics.coverage import Covered, Presence, Sighting, asked_for, coverage
from everstep.core.reference import gate_words, label_words

HEAD = ("number", "name", "type", "unit", "labels", "source", "gate", "faults")
app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Show the metrics, or check which of the 27 a cluster has.\n\nExample: everstep metrics list",
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command(name="list")
def list_metrics(as_json: AsJson = False) -> None:
    """Print the metric table, the 27 core metrics first: a table on a terminal, tab-separated lines in a pipe.

    Example: everstep metrics list --json
    """
    if as_json:
        print(json.dumps({"metrics": [_as_json(metric) for metric in METRICS]}))
    elif sys.stdout.isatty():
        _print_table(METRICS)
    else:
        print("\n".join("\t".join(row) for row in (HEAD, *map(_row, METRICS))))


@app.command()
def check(
    prometheus: Annotated[str, typer.Option("--prometheus", help="Address, such as http://prometheus:9090.")],
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="Bearer token of a guarded Prometheus.", show_default=False)
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", help="PEM file of a private authority.", show_default=False)
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, max=600, help="Seconds for one answer.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Say which of the 27 a Prometheus has, from which exporter, and how to get what is missing.

    Ends with 0 only when all 27 are there, with 1 when one is missing or partial, with 2 when nothing could be asked.

    Example: everstep metrics check --prometheus http://127.0.0.1:9090
    """
    from everstep.cli.prometheus import Prometheus, sightings
    from everstep.core.settings import read_token

    with Prometheus(prometheus, token=read_token(token_file), ca_file=ca_file, timeout_s=timeout_s) as asked:
        found = coverage(sightings(asked, asked_for()))
    complete = all(covered.there for covered in found)
    if as_json:
        print(json.dumps({"ok": complete, "prometheus": prometheus, "metrics": [_found_json(one) for one in found]}))
    else:
        print("\n".join((*(line for covered in found for line in _lines(covered)), _summary(found))))
    raise typer.Exit(0 if complete else 1)


def _row(metric: Metric) -> tuple[str, ...]:
    return (
        str(metric.number or ""),
        metric.name,
        str(metric.kind),
        metric.unit,
        label_words(metric),
        str(metric.source),
        gate_words(metric),
        " ".join(metric.reveals),
    )


def _as_json(metric: Metric) -> dict[str, Any]:
    gate = {key: value for key, value in asdict(metric.gate).items() if value not in (-math.inf, math.inf)}
    return {
        "number": metric.number,
        "name": metric.name,
        "type": str(metric.kind),
        "unit": metric.unit,
        "help": metric.help,
        "labels": {label.name: list(label.values) for label in metric.labels},
        "source": str(metric.source),
        "gate": {"words": gate_words(metric), **gate},
        "faults": list(metric.reveals),
    }


def _print_table(metrics: Iterable[Metric]) -> None:
    """Three columns, so that names stay whole on a narrow terminal too."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("#", "metric", "labels, gate, faults", show_lines=True)
    for number, name, kind, unit, labels, source, gate, faults in map(_row, metrics):
        what = Text.assemble((name, "bold"), f"\n{kind}, {unit or 'always 1'}, from {source}", no_wrap=True)
        table.add_row(number, what, Text("\n".join((labels, gate, faults or "no fault by itself")), overflow="fold"))
    Console().print(table)


def _lines(covered: Covered) -> list[str]:
    metric = covered.metric
    word = covered.presence.upper() if covered.presence is Presence.MISSING else covered.presence.value
    through = "; ".join(_words(sighting) for sighting in covered.sightings)
    told = "; ".join(part for part in (through, covered.note) if part)
    head = f"{word:<8} {metric.number:>2} {metric.name:<48} {told}".rstrip()
    return [head, *(f"{'':<12}- {mend}" for mend in covered.mends)]


def _words(sighting: Sighting) -> str:
    where = f"job {sighting.job}" if sighting.job else "no job (recorded or pushed)"
    via = "" if sighting.exporter == "everstep" else f"{sighting.name} of {sighting.exporter}, "
    return f"{via}{where}, {sighting.num_series} series, newest {sighting.newest_age_s:.0f} s old"


def _summary(found: tuple[Covered, ...]) -> str:
    counts = Counter(covered.presence for covered in found)
    words = ", ".join(f"{counts[presence]} {presence.value}" for presence in Presence if counts[presence])
    return f"{sum(covered.there for covered in found)} of {len(found)} are there ({words})"


def _found_json(covered: Covered) -> dict[str, Any]:
    return {
        "number": covered.metric.number,
        "name": covered.metric.name,
        "presence": covered.presence.value,
        "through": [{**asdict(sighting), "exporter": sighting.exporter} for sighting in covered.sightings],
        "note": covered.note,
        "mends": list(covered.mends),
    }
