"""The verbs: starts, signals and stops workers on order; one job's follow each other, two jobs' do not wait."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import structlog

from everstep.collector.ending import Ender
from everstep.collector.node_state import NodeState
from everstep.collector.orders import SignalOrder, StartOrder, StopOrder, StoreOrder
from everstep.collector.parents import Parents
from everstep.collector.process_state import send_signal
from everstep.collector.refusal import RefusedError
from everstep.collector.starting import Starter
from everstep.collector.workers import Worker
from everstep.core.settings import JobCommand

SHUTDOWN_GRACE_S = 2.0


class Supervisor:
    """Runs only what its own configuration names. Lives in the agent's event loop."""

    def __init__(self, state: NodeState, parents: Parents, ender: Ender) -> None:
        self._state = state
        self._parents = parents
        self._ender = ender
        self._starter = Starter(state, parents)
        self._commands = {command.name: command for command in state.settings.jobs}
        self._locks = {name: asyncio.Lock() for name in self._commands}
        self._cordoned = ""
        self._log = structlog.get_logger()

    def recall(self) -> None:
        """What an earlier agent on this node has left: fences and cordon."""
        for name in self._commands:
            self._state.fence.recall(name)
        cordon = self._state.paths.cordon_file
        if cordon.exists():
            self._cordoned = cordon.read_text() or "cordoned"

    def status(self) -> dict[str, Any]:
        return {
            "node": self._state.settings.node,
            "slots": self._state.settings.slots,
            "cordoned": bool(self._cordoned),
            "jobs": {
                name: {
                    "standby_ready": self._parents.is_ready(name),
                    "standby_problem": self._parents.failure(name),
                    "workers": [worker.describe() for worker in self._state.table.of_job(name)],
                }
                for name in self._commands
            },
        }

    def command(self, job: str) -> JobCommand:
        """Raises `RefusedError` 404 for a job that the configuration does not name."""
        command = self._commands.get(job)
        if command is None:
            known = ", ".join(sorted(self._commands)) or "none"
            raise RefusedError(f"unknown job {job}", mend=f"add it to agent.jobs; known here: {known}", status=404)
        return command

    async def open_store(self, order: StoreOrder) -> tuple[str, int]:
        """Host and port of the attempt's store; the same ones when asked again. Raises `RefusedError`."""
        self.command(order.job)
        async with self._locks[order.job]:
            await self._advance(order.job, order.attempt)
            return await self._starter.open_store(order)

    async def start_worker(self, order: StartOrder) -> int:
        """The pid; the same one when the worker runs already. Raises `RefusedError`."""
        command = self.command(order.job)
        async with self._locks[order.job]:
            if self._cordoned:
                raise RefusedError(
                    f"node {self._state.settings.node} is cordoned ({self._cordoned})",
                    mend="place the rank elsewhere or uncordon the node",
                    status=409,
                )
            await self._advance(order.job, order.attempt)
            present = self._state.table.get(order.job, order.rank)
            if present is not None and present.attempt == order.attempt:
                return _pid_of_running(present)
            self._refuse_full()
            start = self._starter.start_cold if order.cold else self._starter.start_warm
            return await start(order, command)

    def signal(self, order: SignalOrder) -> None:
        """Raises `RefusedError` 404 when there is no such living worker."""
        self.command(order.job)
        worker = self._state.table.get(order.job, order.rank)
        if worker is None or not worker.alive or worker.attempt != order.attempt:
            raise RefusedError(
                f"rank {order.rank} of attempt {order.attempt} of job {order.job} does not run here",
                mend="see /v1/status",
                status=404,
            )
        number = signal.Signals[f"SIG{order.signal}"]
        if number in {signal.SIGTERM, signal.SIGKILL}:
            worker.signalled = True
        self._log.info("worker_signalled", job=order.job, rank=order.rank, signal=number.name)
        send_signal(worker.pid, worker.started_ticks, number)

    async def stop(self, order: StopOrder) -> None:
        """Ends the attempt's workers and store; returns when all are gone. Raises `RefusedError`."""
        self.command(order.job)
        async with self._locks[order.job]:
            self._state.fence.advance(order.job, order.attempt)
            await self._ender.stop(order.job, order.attempt, order.grace_s)
            self._log.info("attempt_stopped", job=order.job, attempt=order.attempt)

    async def stop_all(self) -> None:
        """At shutdown. Raises nothing: the parents' end takes along what is left."""
        for name in self._commands:
            try:
                await self._ender.stop(name, self._state.fence.highest(name), SHUTDOWN_GRACE_S)
            except RefusedError as refusal:
                self._log.error("worker_left", error=str(refusal))

    def cordon(self, reason: str) -> None:
        """Refuse new workers, also after a restart of the agent; those that run go on."""
        self._cordoned = reason
        try:
            self._state.paths.cordon_file.write_text(reason)
        except OSError as error:
            self._log.error("cordon_not_kept", error=str(error), mend=f"free space in {self._state.paths.run_dir}")
        self._log.info("node_cordoned", reason=reason)

    def uncordon(self) -> None:
        self._cordoned = ""
        self._state.paths.cordon_file.unlink(missing_ok=True)
        self._log.info("node_uncordoned")

    def living(self, job: str) -> list[Worker]:
        """Raises `RefusedError` 404 for an unknown job."""
        self.command(job)
        return [worker for worker in self._state.table.of_job(job) if worker.alive]

    async def _advance(self, job: str, attempt: int) -> None:
        """Fence older attempts: refuse them, and end what still runs of them before a newer one starts."""
        if self._state.fence.advance(job, attempt):
            await self._ender.stop(job, attempt - 1, 0.0)

    def _refuse_full(self) -> None:
        slots = self._state.settings.slots
        if len(self._state.table.alive()) >= slots:
            raise RefusedError(
                f"all {slots} slots of node {self._state.settings.node} are taken",
                mend="stop the other job or raise agent.slots",
                status=409,
            )


def _pid_of_running(worker: Worker) -> int:
    if not worker.alive:
        raise RefusedError(
            f"rank {worker.rank} of attempt {worker.attempt} of job {worker.job} has already ended",
            mend="start a new attempt",
            status=409,
        )
    return worker.pid
