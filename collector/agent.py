"""The node agent as a whole: puts the rooms together, runs them until told to stop, cleans up after itself."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import Iterator

import structlog

from everstep.collector import slim
from everstep.collector.api import AgentApi, ApiContext
from everstep.collector.encoding import BatchEncoder
from everstep.collector.ending import Ender
from everstep.collector.exposition import OPENMETRICS, Exposition
from everstep.collector.fence import Fence
from everstep.collector.gate import Rejections
from everstep.collector.gpu.group import Gpus
from everstep.collector.node_state import NodeState
from everstep.collector.parents import Parents, check_names
from everstep.collector.paths import NodePaths
from everstep.collector.probes import echo_answered
from everstep.collector.push import Pusher, PushTarget
from everstep.collector.push_buffer import PushBuffer
from everstep.collector.records import RecordWatcher
from everstep.collector.run_info import RunInfo
from everstep.collector.samples import Dated, Sample
from everstep.collector.sampling import Sampling
from everstep.collector.server import AgentServer, bind, server_of
from everstep.collector.sources import watched_sources
from everstep.collector.supervisor import Supervisor
from everstep.collector.ticker import tick_every
from everstep.collector.watching import Watch
from everstep.collector.workers import WorkerTable
from everstep.core.clock import Clock, SteadyClock, SystemClock
from everstep.core.errors import ConfigError
from everstep.core.settings import AgentSettings, read_token

LAST_PUSH_TIMEOUT_S = 1.0
_JOB_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")


class NodeAgent:
    """Built without side effects outside memory: sources are read once it runs."""

    def __init__(self, settings: AgentSettings, clock: Clock | None = None) -> None:
        """Raises `ConfigError` for values that only the whole can judge."""
        _check(settings)
        self._settings = settings
        self._clock = clock if clock is not None else SystemClock()
        self._paths = NodePaths(settings.run_dir, settings.log_dir)
        check_names(settings.jobs, self._paths)
        fence = Fence(self._paths.attempt_file)
        self._table = WorkerTable(settings.node, fence, self._clock)
        rejections = Rejections()
        self._records = RecordWatcher(self._paths.run_dir / "records", self._table.accepts_record, rejections)
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
        self._sampling = _sampling(settings, self._paths, self._clock, rejections)
        self._told_here = (self._table, self._parents, RunInfo(self._records, settings.jobs))
        self._log = structlog.get_logger()

    def exposition(self) -> str:
        """What a scrape would see now; records are read, nothing is started."""
        self._records.poll()
        self._sampling.read_once()
        body, _ = self._exposition().render(OPENMETRICS)
        self._records.close()
        return body.decode()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises `EverstepError` when it cannot begin."""
        self._paths.prepare()
        try:
            with echo_answered(self._settings):
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
                exposition=self._exposition(),
            )
        )
        server = server_of(api.app, listen)
        socket = bind(listen)
        self._state.wake = pusher.wake
        loop = asyncio.get_running_loop()
        self._sampling.gpus.xids.on_event = lambda: _wake_from_thread(loop, pusher)
        self._sampling.start()
        self._supervisor.recall()
        self._parents.start(self._watch)
        self._stop_on_signals(server)
        host, port = socket.getsockname()[:2]
        self._log.info("agent_started", node=self._settings.node, listen=f"{host}:{port}")
        slim.settle()
        polling = tick_every(self._settings.poll_interval_s, self._watch.poll)
        loops = [asyncio.create_task(pusher.run()), asyncio.create_task(polling)]
        try:
            await _serve_while_running(server, socket, loops)
        finally:
            await self._shut_down(pusher, loops)

    async def _shut_down(self, pusher: Pusher, loops: list[asyncio.Task[None]]) -> None:
        self._sampling.ask_to_stop()
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
        self._sampling.stop()
        self._records.close()
        self._paths.clean([command.name for command in self._settings.jobs])
        self._log.info("agent_stopped", node=self._settings.node)

    def _stop_on_signals(self, server: AgentServer) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.ask_to_stop)

    def _exposition(self) -> Exposition:
        return Exposition([self._sampling, *self._told_here, self._records])

    def _gather(self) -> Iterator[Sample | Dated]:
        yield from self._sampling.drain()
        for source in self._told_here:
            yield from source.collect()
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


def _sampling(settings: AgentSettings, paths: NodePaths, clock: Clock, rejections: Rejections) -> Sampling:
    steady = SteadyClock()
    gpus = Gpus(
        settings,
        steady,
        count_file=paths.gpu_count_file,
        on_duplicate=lambda uuid: rejections.count("everstep_gpu_info", "duplicate", uuid),
    )
    return Sampling(watched_sources(settings, steady), gpus, rejections, clock)


def _wake_from_thread(loop: asyncio.AbstractEventLoop, pusher: Pusher) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended: nothing is pushed any more
        loop.call_soon_threadsafe(pusher.wake)


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
