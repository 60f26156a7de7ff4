"""Series of other exporters on their way in: DCGM, node_exporter, gpud and Slurm become ours, each thing reported once.

The mapping table is `core.metrics.foreign`. One source feeds a series of ours at a time; a native series of the same
thing wins over any mapped one. DCGM's gauge of the last XID counts only when it changes, and a GPU whose temperature
and power stand still under load is not believed until one of them moves (its exporter repeats old values).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from everstep.core.metrics import METRIC_BY_NAME, TARGET_LABELS, Scope
from everstep.core.metrics.foreign import DCGM_RENAMED, FOREIGN, Foreign
from everstep.core.remote_write import is_stale
from everstep.service.fast_decode import Samples
from everstep.service.slots import Labels, SeriesSlot

SOURCE_SILENT_S = 60.0
"""After this long without a sample another source of the same series takes over."""

FROZEN_SAMPLES = 6
LAST_XID, XIDS = "DCGM_FI_DEV_XID_ERRORS", "everstep_gpu_xid_errors_total"
MOVING = ("everstep_gpu_temperature_celsius", "everstep_gpu_power_watts")
LOAD = "everstep_gpu_utilization_ratio"

Identity = tuple[str, ...]
Register = Callable[[Labels], SeriesSlot | None]


@dataclass(slots=True)
class _Target:
    """One series of ours that foreign ones feed; `parts` holds the newest (time, value) of a sum or quotient."""

    slot: SeriesSlot
    identity: Identity
    source: bytes = b""
    heard_at: float = -math.inf
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Feed:
    """A foreign series in one of its roles: the value itself, its second addend or its divisor."""

    row: Foreign
    part: str
    target: _Target


@dataclass(slots=True)
class _LastXid:
    """DCGM's last code of one GPU; counters of ours by code."""

    labels: Labels
    newest: float | None = None
    counters: dict[int, tuple[SeriesSlot, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Still:
    """How often in a row temperature and power of a GPU have repeated themselves, and whether it works."""

    values: dict[str, tuple[float, int]] = field(default_factory=dict)
    load: float = 0.0

    @property
    def frozen(self) -> bool:
        counts = [self.values[name][1] for name in MOVING if name in self.values]
        return self.load > 0 and len(counts) == len(MOVING) and min(counts) >= FROZEN_SAMPLES


class Foreigners:
    """Used by the window store under its lock. `register` makes a slot or says that there is no room for one."""

    def __init__(self, register: Register, rejected: Counter[tuple[str, str]]) -> None:
        self._register = register
        self._rejected = rejected
        self._feeds: dict[bytes, list[_Feed]] = {}
        self._xids: dict[bytes, _LastXid] = {}
        self._targets: dict[Identity, _Target] = {}
        self._natives: dict[Identity, SeriesSlot] = {}
        self._still: defaultdict[str, _Still] = defaultdict(_Still)

    def knows(self, block: bytes) -> bool:
        return block in self._feeds or block in self._xids

    def native(self, slot: SeriesSlot) -> None:
        """A series of our own was seen for the first time."""
        if slot.name in MAPPED:
            self._natives[_identity(slot.name, slot.labels)] = slot

    def meet(self, block: bytes, labels: Labels) -> bool:
        """Whether the series is one that the table maps and that there is room for; then it is remembered."""
        name = labels["__name__"]
        if name == LAST_XID:
            self._xids[block] = _LastXid(_relabelled(labels, DCGM_RENAMED))
            return True
        feeds = [
            _Feed(row=row, part=part, target=target)
            for row, part in BY_NAME.get(name, ())
            if not (row.not_devices and re.fullmatch(row.not_devices, labels.get("device", "")))
            and (target := self._target(row, labels)) is not None
        ]
        if feeds:
            self._feeds[block] = feeds
        return bool(feeds)

    def translate(self, block: bytes, samples: Samples, *, arrived: float) -> Iterator[tuple[SeriesSlot, Samples]]:
        """What the samples are in our series; refused ones are counted and left out."""
        if block in self._xids:
            yield from self._xid_events(self._xids[block], samples)
            return
        for feed in self._feeds[block]:
            reason = self._refusal(feed, block, arrived)
            if reason:
                self._rejected[feed.row.ours, reason] += len(samples)
                continue
            ours = [one for sample in samples if (one := _converted(feed, sample)) is not None]
            kept = [one for one in ours if self._moves(feed.target.slot, *one)]
            if len(kept) < len(ours):
                self._rejected[feed.row.ours, "stale"] += len(ours) - len(kept)
                feed.target.slot.ended = True
            if kept:
                yield feed.target.slot, kept

    def _refusal(self, feed: _Feed, block: bytes, arrived: float) -> str:
        """`duplicate` where the native agent or another exporter already reports the same thing."""
        target = feed.target
        native = self._natives.get(target.identity)
        if native is not None and _speaks(native, arrived):
            target.slot.ended = True
            return "duplicate"
        if feed.part != "value":
            return ""
        if target.source != block and arrived - target.heard_at <= SOURCE_SILENT_S:
            return "duplicate"
        target.source, target.heard_at = block, arrived
        return ""

    def _moves(self, slot: SeriesSlot, at: float, value: float) -> bool:
        """Whether the GPU of this sample is to be believed."""
        del at
        uuid = slot.labels.get("uuid", "")
        if not uuid or is_stale(value):
            return True
        still = self._still[uuid]
        if slot.name == LOAD and slot.labels.get("engine") == "sm":
            still.load = value
        elif slot.name in MOVING and slot.labels.get("sensor", "core") == "core":
            last, count = still.values.get(slot.name, (math.nan, 0))
            still.values[slot.name] = value, count + 1 if value == last else 1
        return not still.frozen

    def _xid_events(self, last: _LastXid, samples: Samples) -> Iterator[tuple[SeriesSlot, Samples]]:
        """One event each time that the code changes to another; its level, and the first sight, say nothing."""
        for at, value in samples:
            known, last.newest = last.newest, value
            if known is None or value == known or not 1 <= value <= 999 or value != int(value):
                continue
            code = int(value)
            slot = self._xid_slot(last, code)
            if slot is None:
                self._rejected[XIDS, "duplicate"] += 1
                continue
            count = last.counters[code][1] if code in last.counters else 0
            last.counters[code] = slot, count + 1
            first = [(at - 1.0, 0.0)] if not count else []  # so that an increase shows the first event too
            yield slot, [*first, (at, float(count + 1))]

    def _xid_slot(self, last: _LastXid, code: int) -> SeriesSlot | None:
        """Where a hint counts; nowhere while somebody counts the codes themselves."""
        labels = _ours(XIDS, {**last.labels, "xid": str(code)}, {})
        identity = _identity(XIDS, labels)
        if identity in self._natives or identity in self._targets:
            return None
        known = last.counters.get(code)
        return known[0] if known is not None else self._register(labels)

    def _target(self, row: Foreign, labels: Labels) -> _Target | None:
        named = _relabelled(labels, (*DCGM_RENAMED, *row.renamed))
        ours = _ours(row.ours, named, dict(row.labels))
        identity = _identity(row.ours, ours)
        target = self._targets.get(identity)
        if target is None:
            slot = self._register(ours)
            if slot is None:
                self._rejected[row.ours, "limit"] += 1
                return None
            target = self._targets[identity] = _Target(slot=slot, identity=identity)
        return target


def _speaks(native: SeriesSlot, arrived: float) -> bool:
    """Whether the agent reports the thing; one that was met in this very push does."""
    met_now = native.newest_at == -math.inf
    return not native.ended and (met_now or arrived - native.newest_at <= SOURCE_SILENT_S)


def _converted(feed: _Feed, sample: tuple[float, float]) -> tuple[float, float] | None:
    """The sample in our unit; None while the other part of a sum or quotient is missing."""
    row, (at, value) = feed.row, sample
    if is_stale(value) or not (row.plus or row.divided_by):
        return at, value if is_stale(value) else value * row.factor
    parts = feed.target.parts
    parts[feed.part] = sample
    other = row.plus or row.divided_by
    if "value" not in parts or other not in parts or parts["value"][0] != parts[other][0]:
        return None
    first, second = parts["value"][1], parts[other][1]
    if row.plus:
        return at, (first + second) * row.factor
    return (at, first / second * row.factor) if second > 0 else None


def _relabelled(labels: Labels, renamed: tuple[tuple[str, str], ...]) -> Labels:
    """Their labels under our names; the node is the host of `instance` where nothing better says it."""
    found = {ours: labels[theirs] for theirs, ours in renamed if labels.get(theirs)}
    node = found.get("node") or labels.get("node") or _host(labels.get("instance", ""))
    return {**labels, **found, "node": node}


def _host(instance: str) -> str:
    """An address without its port; an IPv6 one without its brackets."""
    host, _, port = instance.rpartition(":")
    return host.strip("[]") if host and port.isdigit() else instance


def _ours(name: str, labels: Labels, fixed: Labels) -> Labels:
    wanted = (*TARGET_LABELS, *METRIC_BY_NAME[name].label_names)
    kept = {one: labels[one] for one in wanted if labels.get(one)}
    return {**kept, **fixed, "__name__": name}


def _identity(name: str, labels: Labels) -> Identity:
    """The thing that is measured: a GPU by its uuid, all else by node and labels."""
    metric = METRIC_BY_NAME[name]
    by_uuid = metric.scope is Scope.GPU and labels.get("uuid")
    where = "" if by_uuid else labels.get("node", "")
    return (
        name,
        where,
        *(labels.get(one, "") for one in metric.label_names if not (by_uuid and one == "gpu")),
    )


def _by_name() -> dict[str, tuple[tuple[Foreign, str], ...]]:
    rows: defaultdict[str, list[tuple[Foreign, str]]] = defaultdict(list)
    for row in FOREIGN:
        rows[row.theirs].append((row, "value"))
        for other in (row.plus, row.divided_by):
            if other:
                rows[other].append((row, other))
    return {name: tuple(found) for name, found in rows.items()}


BY_NAME = _by_name()
MAPPED = frozenset({row.ours for row in FOREIGN} | {XIDS})
