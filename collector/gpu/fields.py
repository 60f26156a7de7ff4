"""What is read from each GPU by NVML field ids (FI of nvidia-ml-py 13.615), with its metric, labels and unit.

The first of a quantity's fields that the device offers is used: NVLink 5 has other ids than its forebears.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everstep.core.metrics.hardware import DIRECTION

ALL_LINKS = 0xFFFFFFFF
"""Scope of an NVLink counter that asks for the sum of all links."""
MAX_LINKS = 36

TRANSMIT, RECEIVE = DIRECTION.values
NANOSECONDS = 1e-9
MILLIWATTS = 1e-3
KIBIBYTES = 1024.0

FieldKey = tuple[int, int]
"""Field id and scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """`by_link` fields are asked link by link when the device refuses the sum of all.

    `since` and `before` bound the driver's major version where an id means different things to different drivers.
    """

    id: int
    scale: float = 1.0
    scope: int = 0
    by_link: bool = False
    since: int = 0
    before: int = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One series of a GPU; `label` comes after gpu and uuid. With `drop_zero` a zero means that there is no sensor."""

    metric: str
    fields: tuple[Field, ...]
    label: tuple[tuple[str, str], ...] = ()
    drop_zero: bool = False


def _one(metric: str, field: int, scale: float = 1.0, **label: str) -> Quantity:
    return Quantity(metric=metric, fields=(Field(id=field, scale=scale),), label=tuple(label.items()))


def _throttled(reason: str, *fields: Field) -> Quantity:
    return Quantity(metric="everstep_gpu_throttled_seconds_total", fields=fields, label=(("reason", reason),))


def _policy(reason: str, field: int) -> Quantity:
    return _throttled(reason, Field(id=field, scale=NANOSECONDS))


def _slowdown(reason: str, in_575: int, since_590: int) -> Quantity:
    """NVIDIA moved these among the power-smoothing fields: 251 in its bindings of 575, 269 in those of 580 and later.

    The 580 driver's own nvidia-smi still asks for 251. Between the two nothing is asked, and reasons are sampled.
    """
    return _throttled(
        reason,
        Field(id=in_575, scale=NANOSECONDS, since=575, before=580),
        Field(id=since_590, scale=NANOSECONDS, since=590),
    )


def _nvlink(kind: str, *fields: Field) -> Quantity:
    return Quantity(metric="everstep_gpu_nvlink_errors_total", fields=fields, label=(("kind", kind),))


def _nvlink_bytes(direction: str, before_5: int, nvlink_5: int) -> Quantity:
    return Quantity(
        metric="everstep_gpu_nvlink_bytes_total",
        fields=(
            Field(id=before_5, scale=KIBIBYTES, scope=ALL_LINKS, by_link=True),
            Field(id=nvlink_5, scope=ALL_LINKS, by_link=True),
        ),
        label=(("direction", direction),),
    )


POWER = Quantity(
    metric="everstep_gpu_power_watts", fields=(Field(id=186, scale=MILLIWATTS), Field(id=185, scale=MILLIWATTS))
)

QUANTITIES: tuple[Quantity, ...] = (
    Quantity(
        metric="everstep_gpu_temperature_celsius",
        fields=(Field(id=82),),
        label=(("sensor", "memory"),),
        drop_zero=True,
    ),
    POWER,
    _policy("power", 74),
    _policy("thermal", 75),
    _policy("sync_boost", 76),
    _policy("board_limit", 77),
    _policy("low_utilization", 78),
    _policy("reliability", 79),
    _slowdown("sw_thermal", 251, 269),
    _slowdown("hw_thermal", 252, 270),
    _slowdown("power_brake", 253, 271),
    _one("everstep_gpu_ecc_errors_total", 3, type="corrected"),
    _one("everstep_gpu_ecc_errors_total", 4, type="uncorrected"),
    _one("everstep_gpu_ecc_aggregate_errors_total", 5, type="corrected"),
    _one("everstep_gpu_ecc_aggregate_errors_total", 6, type="uncorrected"),
    _nvlink("crc_flit", Field(id=38)),
    _nvlink("crc_data", Field(id=45)),
    _nvlink("replay", Field(id=52)),
    _nvlink("recovery", Field(id=59), Field(id=215, scope=ALL_LINKS, by_link=True)),
    _nvlink("ecc", Field(id=160)),
    _nvlink("symbol", Field(id=221, scope=ALL_LINKS, by_link=True)),
    _one("everstep_gpu_pcie_replays_total", 94),
    _one("everstep_gpu_pcie_bytes_total", 197, direction=TRANSMIT),
    _one("everstep_gpu_pcie_bytes_total", 198, direction=RECEIVE),
    _nvlink_bytes(TRANSMIT, 138, 202),
    _nvlink_bytes(RECEIVE, 139, 204),
    _one("everstep_gpu_row_remaps_total", 142, type="corrected"),
    _one("everstep_gpu_row_remaps_total", 143, type="uncorrected"),
    _one("everstep_gpu_row_remap_state", 144, state="pending"),
    _one("everstep_gpu_row_remap_state", 145, state="failure"),
)
RECOVERY_ACTION = 230

LAYOUT = struct.Struct("=IIqqII8s")
"""nvmlFieldValue_t: id, scope, time, latency, type of the value, return code, value."""
_VALUES = tuple(struct.Struct("=" + code) for code in ("d", "I", "Q", "Q", "q", "i", "H"))
"""By NVML's number of the type. A C long has eight bytes wherever there is a driver."""

Answers = dict[FieldKey, tuple[int, float]]
"""NVML's return code and the value, NaN where there is none."""


def answers_in(array: Any, keys: Sequence[FieldKey]) -> Answers:
    """The answers in NVML's array, read from its bytes: field by field ctypes would cost more than the driver."""
    found: Answers = {}
    for key, (*_, kind, code, value) in zip(keys, LAYOUT.iter_unpack(bytes(array)), strict=True):
        if code == 0 and kind < len(_VALUES):
            found[key] = (0, float(_VALUES[kind].unpack_from(value)[0]))
        else:
            found[key] = (code, math.nan)
    return found
