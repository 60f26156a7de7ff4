"""The parents of all workers: one warm parent a job, one without imports for torchrun once a cold start was ordered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from everstep.collector.paths import NodePaths
from everstep.collector.samples import Sample
from everstep.collector.standby import StandbyConfig
from everstep.collector.standby_link import ChildListener, StandbyLink
from everstep.core.settings import AgentSettings, JobCommand

COLD_PARENT_TIMEOUT_S = 15.0
SHUTDOWN_TIMEOUT_S = 5.0


class Parents:
    """Keeps them running; `start` before use, in the event loop."""

    def __init__(self, settings: AgentSettings, paths: NodePaths) -> None:
        self._settings = settings
        self._paths = paths
        self._links: dict[str, StandbyLink] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._listener: ChildListener | None = None

    def start(self, listener: ChildListener) -> None:
        """Find or start the warm parents, and find cold ones that a dead agent has left; returns at once."""
        self._listener = listener
        for command in self._settings.jobs:
            self._keep(_warm_name(command.name), command.name, tuple(command.preload), listener)
            if self._paths.socket(_cold_name(command.name)).exists():
                self._keep(_cold_name(command.name), command.name, (), listener)

    def warm(self, job: str) -> StandbyLink:
        return self._links[_warm_name(job)]

    def is_ready(self, job: str) -> bool:
        link = self._links.get(_warm_name(job))
        return link is not None and link.ready

    def failure(self, job: str) -> str:
        """Why the job has no warm parent and will have none before somebody mends it; else empty."""
        link = self._links.get(_warm_name(job))
        return link.failure if link is not None else ""

    async def cold(self, job: str) -> StandbyLink:
        """Started when first asked for. Raises `RefusedError` when it does not come up."""
        name = _cold_name(job)
        if name not in self._links and self._listener is not None:
            self._keep(name, job, (), self._listener)
        link = self._links[name]
        await link.wait_ready(COLD_PARENT_TIMEOUT_S)
        return link

    async def shut_down(self) -> None:
        """End them and all that they have forked."""
        await asyncio.gather(*(link.shut_down(SHUTDOWN_TIMEOUT_S) for link in self._links.values()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def collect(self) -> Iterable[Sample]:
        for command in self._settings.jobs:
            yield Sample(
                metric="everstep_agent_standby_ready",
                labels=(("train_job", command.name),),
                value=float(self.is_ready(command.name)),
            )

    def _keep(self, name: str, job: str, preload: tuple[str, ...], listener: ChildListener) -> None:
        config = StandbyConfig(
            job=job,
            preload=preload,
            orphan_grace_s=self._settings.orphan_grace_s,
            socket=str(self._paths.socket(name)),
            run_dir=str(self._paths.run_dir),
        )
        link = StandbyLink(name, config, self._paths.log_dir / f"{name}.log", listener)
        self._links[name] = link
        self._tasks.append(asyncio.create_task(link.run(), name=name))


def check_names(jobs: list[JobCommand], paths: NodePaths) -> None:
    """Raises `ConfigError` when a job's socket path would be too long."""
    for command in jobs:
        paths.socket(_warm_name(command.name))


def _warm_name(job: str) -> str:
    return f"standby-{job}"


def _cold_name(job: str) -> str:
    return f"cold-{job}"
