"""What the root-cause engine is given: one job's anomalies and where its ranks run."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.engine import RankPlacement
from everstep.core.events import Anomaly


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseEvidence:
    """Everything known of one disturbance.

    `last_step_at` is when any rank last finished a step, in seconds since the epoch, where the caller knows it: a step
    that ends after an alleged death proves the report wrong. `resume_step` is where the attempt began.
    """

    job: str
    attempt: int
    anomalies: tuple[Anomaly, ...]
    placements: tuple[RankPlacement, ...] = ()
    last_step_at: float | None = None
    resume_step: int | None = None
