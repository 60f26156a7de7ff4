"""The node agent as a whole: puts the rooms together, runs them until told to stop, cleans up after itself."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Iterable, Iterator

import structlog

from everstep.collector.api import AgentApi, ApiContext
from everstep.collector.encoding import BatchEncoder
from everstep.collector.ending import Ender
from everstep.collector.exposition import registry_of, render
from everstep.collector.fence import Fence
from everstep.collector.host import Host
from everstep.collector.node_state import NodeState
from everstep.collector.nvml import Gpus
from everstep.collector.parents import Parents, check_names
from everstep.collector.paths import NodePaths
from everstep.collector.push import Pusher, PushTarget
from everstep.collector.push_buffer import PushBuffer
from everstep.collector.records import RecordWatcher
from everstep.collector.samples import Sample, SampleSource
from everstep.collector.server import AgentServer, bind, server_of
from everstep.collector.supervisor import Supervisor
from everstep.collector.watching import Watch
from everstep.collector.workers import WorkerTable
from everstep.core.clock import Clock, SystemClock
from everstep.core.errors import ConfigError
from everstep.core.settings import AgentSettings, read_token

LAST_PUSH_TIMEOUT_S = 1.0
_JOB_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")


class ScrapeDuration:
    """How long one full collection of the other sources took at its last scrape or push."""

    def __init__(self, sources: tuple[SampleSource, ...]) -> None:
        self._sources = sources
        self.last_s = 0.0

    def collect(self) -> Iterable[Sample]:
        start = time.perf_counter()
        for source in self._sources:
            yield from source.collect()
        self.last_s = time.perf_counter() - start
        yield Sample(metric="everstep_agent_scrape_duration_seconds", value=self.last_s)


class NodeAgent:
    """Built without side effects outside memory, except that the GPU driver is asked for its devices."""

    def __init__(self, settings: AgentSettings, clock: Clock | None = None) -> None:
        """Raises `ConfigError` for values that only the whole can judge."""
        _check(settings)
        self._settings = settings
        self._clock = clock if clock is not None else SystemClock()
        self._paths = NodePaths(settings.run_dir, settings.log_dir)
        check_names(settings.jobs, self._paths)
        fence = Fence(self._paths.attempt_file)
        self._table = WorkerTable(settings.node, fence, self._clock)
        self._records = RecordWatcher(self._paths.run_dir / "records", self._table.accepts_record)
        self._parents = Parents(settings, self._paths)
        self._state = NodeState(
            settings=settings,
            paths=self._paths,
            fence=fence,
            table=self._table,
            records=self._records,
            wake=lambda: None,
        )
        ender = Ender(self._state)
        self._supervisor = Supervisor(self._state, self._parents, ender)
        self._watch = Watch(self._state, ender)
        self._steady = ScrapeDuration((Host(), Gpus(), self._table, self._parents))
        self._log = structlog.get_logger()

    def exposition(self) -> str:
        """What a scrape would see now; records are read, nothing is started."""
        self._records.poll()
        body, _ = render(registry_of([self._steady, self._records]), "")
        self._records.close()
        return body.decode()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises `EverstepError` when it cannot begin."""
        self._paths.prepare()
        try:
            await self._run_locked()
        finally:
            self._paths.release()

    async def _run_locked(self) -> None:
        listen = self._settings.listen
        pusher = self._pusher()
        api = AgentApi(
            ApiContext(
                node=self._settings.node,
                token=read_token(listen.token_file),
                supervisor=self._supervisor,
                paths=self._paths,
                registry=registry_of([self._steady, self._records]),
            )
        )
        server = server_of(api.app, listen)
        socket = bind(listen)
        self._state.wake = pusher.wake
        self._supervisor.recall()
        self._parents.start(self._watch)
        self._stop_on_signals(server)
        host, port = socket.getsockname()[:2]
        self._log.info("agent_started", node=self._settings.node, listen=f"{host}:{port}")
        loops = [asyncio.create_task(pusher.run()), asyncio.create_task(self._poll())]
        try:
            await _serve_while_running(server, socket, loops)
        finally:
            await self._shut_down(pusher, loops)

    async def _poll(self) -> None:
        while True:
            self._watch.poll()
            await asyncio.sleep(self._settings.poll_interval_s)

    async def _shut_down(self, pusher: Pusher, loops: list[asyncio.Task[None]]) -> None:
        await self._supervisor.stop_all()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_PUSH_TIMEOUT_S):
                await pusher.push()
        except TimeoutError:
            self._log.warning("last_push_lost", mend="none needed; the service sees the node go silent")
        await pusher.close()
        await self._parents.shut_down()
        self._records.close()
        self._paths.clean([command.name for command in self._settings.jobs])
        self._log.info("agent_stopped", node=self._settings.node)

    def _stop_on_signals(self, server: AgentServer) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.ask_to_stop)

    def _gather(self) -> Iterator[Sample]:
        yield from self._steady.collect()
        yield from self._records.drain()

    def _pusher(self) -> Pusher:
        settings = self._settings
        target = PushTarget(
            service_url=settings.service_url,
            token=read_token(settings.service_token_file),
            token_file=settings.service_token_file,
            ca_file=settings.service_ca_file,
            timeout_s=settings.push_timeout_s,
        )
        labels = {"cluster": settings.cluster, "node": settings.node, "rack": settings.rack}
        return Pusher(
            target,
            BatchEncoder(labels),
            PushBuffer(settings.push_buffer_samples),
            self._gather,
            self._clock,
            settings.push_interval_s,
        )


async def _serve_while_running(server: AgentServer, socket: object, loops: list[asyncio.Task[None]]) -> None:
    """Until the server is told to stop; a loop that breaks ends the agent rather than leave it half alive."""
    serving = asyncio.create_task(server.serve(sockets=[socket]))  # type: ignore[list-item]
    await asyncio.wait([serving, *loops], return_when=asyncio.FIRST_COMPLETED)
    server.ask_to_stop()
    await serving
    for loop in loops:
        if loop.done():
            loop.result()


def _check(settings: AgentSettings) -> None:
    names = [command.name for command in settings.jobs]
    for name in names:
        if not _JOB_NAME.match(name):
            raise ConfigError(
                f"agent.jobs: name {name!r} cannot be used in a path",
                mend="use up to 63 letters, digits, dots, dashes and underscores",
            )
    if len(set(names)) != len(names):
        raise ConfigError("agent.jobs: a name stands there twice", mend="give each job a name of its own")


def run_agent(settings: AgentSettings) -> None:
    """Blocks until the agent is told to stop. Raises `EverstepError`."""
    asyncio.run(NodeAgent(settings).run())
