"""What the agent tries out by itself, made from its settings: storage, the way to other agents, the job queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain

from everstep.collector.echo import EchoResponder
from everstep.collector.fsync_probe import FsyncProbe
from everstep.collector.latency_probe import LOST_AFTER_S, LatencyProbe, Peer, without_self
from everstep.collector.mounts import FreeSpace, StorageFolder
from everstep.collector.samples import Sample, SampleSource
from everstep.collector.slurm_queue import TIMEOUT_S, SlurmQueue
from everstep.collector.storage_latency import StorageLatency
from everstep.collector.watched import WatchedSource
from everstep.core.clock import Clock
from everstep.core.settings import AgentSettings

QUEUE_INTERVAL_S = 30.0


class SourceGroup:
    """Several sources that are read one after the other; none of them may wait."""

    def __init__(self, *sources: SampleSource) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Sample]:
        return chain.from_iterable(source.collect() for source in self._sources)


def storage_folders(settings: AgentSettings) -> list[StorageFolder]:
    """Those of `probes.storage`, then the jobs' checkpoint folders, which a job may have yet to make. Each once."""
    folders = {target.path: StorageFolder(target=target.name, path=target.path) for target in settings.probes.storage}
    for job in settings.jobs:
        path = job.checkpoint_dir
        if path is not None and path not in folders:
            folders[path] = StorageFolder(target=str(path), path=path, required=False)
    return list(folders.values())


def storage_sources(settings: AgentSettings, clock: Clock) -> Iterator[WatchedSource]:
    """Two threads a folder, which may hang with it, and one that tells of all their latencies and never waits."""
    probes = settings.probes
    watched = partial(
        WatchedSource, interval_s=probes.storage_interval_s, deadline_s=probes.storage_timeout_s, clock=clock
    )
    latencies: list[StorageLatency] = []
    for folder in storage_folders(settings):
        latency = StorageLatency(folder.target, probes.storage_timeout_s)
        latencies.append(latency)
        probe = FsyncProbe(folder, settings.node, latency)
        yield watched("storage_probe", probe, device=folder.target)
        yield watched("filesystems", FreeSpace(folder), device=folder.target)
    if latencies:
        yield WatchedSource(
            "storage_probe",
            SourceGroup(*latencies),
            interval_s=max(settings.sample_interval_s, probes.storage_interval_s / 2),
            deadline_s=settings.source_deadline_s,
            clock=clock,
        )


def network_sources(settings: AgentSettings, clock: Clock) -> Iterator[WatchedSource]:
    """Nothing without peers."""
    probes = settings.probes
    peers = [Peer(address=str(peer.address), port=peer.port, rack=peer.rack, rail=peer.rail) for peer in probes.peers]
    others = without_self(peers, echo_port(settings)) if probes.echo is not None else peers
    if others:
        yield WatchedSource(
            "network_probe",
            LatencyProbe(others, settings.node, probes.peers_per_round),
            interval_s=probes.peers_interval_s,
            deadline_s=max(settings.source_deadline_s, 4 * LOST_AFTER_S),
            clock=clock,
        )


def queue_sources(settings: AgentSettings, clock: Clock) -> Iterator[WatchedSource]:
    """Nothing unless this agent was chosen for it."""
    if settings.probes.slurm:
        yield WatchedSource(
            "scheduler", SlurmQueue(), interval_s=QUEUE_INTERVAL_S, deadline_s=2 * TIMEOUT_S, clock=clock
        )


def echo_port(settings: AgentSettings) -> int:
    """The number of the agent's own port unless another one is set."""
    echo = settings.probes.echo
    return echo.port if echo is not None and echo.port else settings.listen.port


@contextmanager
def echo_answered(settings: AgentSettings) -> Iterator[None]:
    """Answers other agents meanwhile, if that is configured. Raises `ConfigError` when the port cannot be had."""
    echo = settings.probes.echo
    if echo is None:
        yield
        return
    responder = EchoResponder(echo.host, echo_port(settings))
    responder.start()
    try:
        yield
    finally:
        responder.close()
