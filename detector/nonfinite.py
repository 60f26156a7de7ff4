"""Steps whose loss or local gradient was NaN or infinite, with the batch and whether the input already was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everstep.core.events import Anomaly, Direction, Entity, EntityKind

METRIC = "everstep_train_nonfinite_steps_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class NonfiniteCount:
    """What one rank reports: steps counted in this attempt, the batch and input flag of the last one, and when."""

    rank: int
    steps: int
    batch: int
    input_nonfinite: bool
    step: int
    at: float


def judge_nonfinite(job: str, counts: Sequence[NonfiniteCount]) -> list[Anomaly]:
    """One anomaly for each affected rank; each names all affected ranks, for after the all-reduce NaN is everywhere."""
    hit = [count for count in counts if count.steps > 0]
    ranks = sorted(count.rank for count in hit)
    return [
        Anomaly(
            entity=Entity(kind=EntityKind.RANK, name=f"{job}/{count.rank}"),
            metric=METRIC,
            onset_earliest=count.at,
            onset_latest=count.at,
            score=1.0 + count.steps,
            direction=Direction.HIGH,
            detector="nonfinite",
            observed=float(count.steps),
            expected=0.0,
            evidence={
                "batch": count.batch,
                "input_nonfinite": count.input_nonfinite,
                "step": count.step,
                "ranks": ranks,
            },
        )
        for count in hit
    ]


def is_located(anomaly: Anomaly) -> bool:
    """Whether the rank saw the bad number in its own input, so that nobody else needs to be heard."""
    return anomaly.detector == "nonfinite" and bool(anomaly.evidence.get("input_nonfinite"))
