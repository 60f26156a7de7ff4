"""The learned band of one series that has no peers (loss, gradient norm): recent past, robust line, robust scatter.

Pure. The line is that of Brown and Mood (On median tests for linear hypotheses, Berkeley Symposium 1951): through the
medians of the two halves, so that a loss that falls stays inside its band; the scatter is the MAD around the line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from everstep.detector.baseline import MAD_TO_SIGMA

WINDOW = 256
LEAST = 48
SMOOTH = 5
SIGMAS = 6.0
FLOOR = 0.02
"""Least half width as a share of the centre, so that a constant series does not make every ripple an alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What is normal for the newest sample, in the series' unit; `score` 1.0 is the edge of the band, or beyond."""

    lower: float
    upper: float
    score: float


def robust_band(values: NDArray[np.float64], *, log: bool = False) -> Band | None:
    """The band of the newest samples as the ones before them predict it; None where fewer than `LEAST` are finite.

    `values` are oldest first. With `log` the band is a factor around the centre, for a series that is never negative.
    A newest sample that is not finite scores 1.0; else the median of the newest `SMOOTH` is judged.

    >>> falling = np.linspace(4.0, 3.0, 100) + 0.01 * np.sin(np.arange(100.0))
    >>> band = robust_band(falling)
    >>> band.lower < 3.0 < band.upper, band.score < 1, robust_band(np.append(falling, [9.0] * 5)).score
    (True, True, 1.0)
    """
    recent = values[-WINDOW:]
    scaled = _scaled(recent, log=log)
    past, newest = scaled[:-SMOOTH], scaled[-SMOOTH:]
    at = np.flatnonzero(np.isfinite(past)).astype(np.float64)
    if len(at) < LEAST:
        return None
    held = past[at.astype(np.intp)]
    slope, offset = _line(at, held)
    centre = slope * (len(scaled) - 1) + offset
    scatter = MAD_TO_SIGMA * float(np.median(np.abs(held - (slope * at + offset))))
    half = SIGMAS * max(scatter, FLOOR / SIGMAS * (1.0 if log else abs(centre)), 1e-12)
    lower, upper = centre - half, centre + half
    if log:
        lower, upper = math.exp(min(lower, 700.0)), math.exp(min(upper, 700.0))
    return Band(lower=lower, upper=upper, score=_score(newest, float(recent[-1]), centre, half))


def _scaled(values: NDArray[np.float64], *, log: bool) -> NDArray[np.float64]:
    """Logarithms where asked for; what has none becomes NaN (missing)."""
    if not log:
        return values
    usable = np.isfinite(values) & (values > 0)
    return np.where(usable, np.log(np.where(usable, values, 1.0)), np.nan)


def _line(at: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, float]:
    """Slope and offset through the medians of both halves."""
    half = len(at) // 2
    first, last = float(np.median(at[:half])), float(np.median(at[half:]))
    slope = (float(np.median(values[half:])) - float(np.median(values[:half]))) / (last - first)
    return slope, float(np.median(values - slope * at))


def _score(newest: NDArray[np.float64], last: float, centre: float, half: float) -> float:
    finite = newest[np.isfinite(newest)]
    if not math.isfinite(last):
        return 1.0
    return min(1.0, abs(float(np.median(finite)) - centre) / half) if len(finite) else 0.0
