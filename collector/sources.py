"""The sources of this node, each in its own watched thread: the one list of what an agent samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from everstep.collector.clock_offset import ClockOffset
from everstep.collector.fans import Fans
from everstep.collector.host import Host
from everstep.collector.infiniband import InfiniBand
from everstep.collector.link_rates import LinkRates
from everstep.collector.mounts import LustreMounts, NfsMounts
from everstep.collector.probes import SourceGroup, network_sources, queue_sources, storage_sources
from everstep.collector.watched import WatchedSource
from everstep.core.clock import Clock
from everstep.core.settings import AgentSettings

SLOW_INTERVAL_S = 5.0


def watched_sources(settings: AgentSettings, clock: Clock) -> list[WatchedSource]:
    """What does not depend on the GPUs found; nothing is started. `clock` measures ages, see `WatchedSource`."""
    watched = partial(
        WatchedSource, interval_s=settings.sample_interval_s, deadline_s=settings.source_deadline_s, clock=clock
    )
    proc, sys = settings.proc_root, settings.sys_root
    return [
        watched("host", Host(proc, sys / "fs" / "cgroup", sys)),
        watched("infiniband", InfiniBand(sys)),
        *_slow_sources(settings, clock),
        *storage_sources(settings, clock),
        *network_sources(settings, clock),
        *queue_sources(settings, clock),
    ]


def _slow_sources(settings: AgentSettings, clock: Clock) -> Iterator[WatchedSource]:
    """What changes slowly, or is slow to read: a fan behind the management controller, a rate behind a network lock."""
    proc, sys = settings.proc_root, settings.sys_root
    watched = partial(
        WatchedSource,
        interval_s=max(settings.sample_interval_s, SLOW_INTERVAL_S),
        deadline_s=max(settings.source_deadline_s, SLOW_INTERVAL_S),
        clock=clock,
    )
    yield watched("mounts", SourceGroup(NfsMounts(proc), LustreMounts(proc, sys)))
    yield watched("link_rates", LinkRates(sys))
    yield watched("fans", Fans(sys))
    yield watched("clock", ClockOffset())
