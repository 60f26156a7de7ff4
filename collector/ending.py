"""Ending: note how a worker ended, stop an attempt in order, and be sure that nobody of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import structlog

from everstep.collector.exit_reason import classify, read_tail
from everstep.collector.node_state import NodeState
from everstep.collector.process_state import kill_group, read_process, same_process, send_signal
from everstep.collector.refusal import RefusedError
from everstep.collector.workers import StoreProcess, Worker

REAP_TIMEOUT_S = 5.0
_LOOK_INTERVAL_S = 0.02


class Ender:
    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._log = structlog.get_logger()

    def note_end(self, worker: Worker, exit_code: int) -> None:
        """The worker has ended; the first one told counts."""
        if not worker.alive:
            return
        reason = classify(exit_code, read_tail(worker.log), stopped_by_agent=worker.signalled)
        self._state.table.end(worker, exit_code, reason)
        self._state.records.finish(worker.job, worker.rank)
        self._log.info(
            "worker_ended",
            job=worker.job,
            rank=worker.rank,
            attempt=worker.attempt,
            exit_code=exit_code,
            reason=reason.value,
        )
        self._state.wake()

    async def stop(self, job: str, attempt: int, grace_s: float) -> None:
        """End the workers and the store of that attempt and of older ones. Raises `RefusedError` 504 when one stays."""
        workers = [worker for worker in self._state.table.of_job(job) if worker.alive and worker.attempt <= attempt]
        for worker in workers:
            worker.signalled = True
        if grace_s > 0:
            self._ask_to_end(workers)
            await _wait_for([worker.gone for worker in workers], grace_s)
        for worker in workers:
            if worker.alive:
                _kill(worker)
        await _wait_for([worker.gone for worker in workers], REAP_TIMEOUT_S)
        await self._be_sure(workers)
        for worker in workers:
            self.note_end(worker, -signal.SIGKILL)  # nobody was left to tell
        await self._end_store(job, attempt)
        self._state.table.retire(job, attempt)
        self._state.wake()

    def _ask_to_end(self, workers: list[Worker]) -> None:
        for worker in workers:
            send_signal(worker.pid, worker.started_ticks, signal.SIGCONT)
            send_signal(worker.pid, worker.started_ticks, signal.SIGTERM)

    async def _be_sure(self, workers: list[Worker]) -> None:
        """Whole sessions are gone, torchrun included; kills what is left of them."""
        groups = {worker.pid: worker for worker in workers}
        groups |= {worker.torchrun_pid: worker for worker in workers if worker.torchrun_pid is not None}
        deadline = time.monotonic() + REAP_TIMEOUT_S
        while left := [group for group in groups if _has_members(group)]:
            if time.monotonic() > deadline:
                worker = groups[left[0]]
                reading = read_process(worker.pid)
                shown = reading.state.value if reading is not None else "gone"
                raise RefusedError(
                    f"processes of rank {worker.rank} of job {worker.job} (group {left[0]}, {shown}) do not end",
                    mend="they hang in the kernel: isolate the node",
                    status=504,
                )
            for group in left:
                kill_group(group)
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def _end_store(self, job: str, attempt: int) -> None:
        store: StoreProcess | None = self._state.stores.get(job)
        if store is None or store.attempt > attempt:
            return
        kill_group(store.pid)
        await _wait_for([store.gone], REAP_TIMEOUT_S)
        self._state.stores.pop(job, None)
        self._log.info("store_ended", job=job, attempt=store.attempt)


def _kill(worker: Worker) -> None:
    """SIGKILL reaches stopped processes, too. A pid that has a new owner is left alone."""
    if same_process(worker.pid, worker.started_ticks):
        kill_group(worker.pid)
    if worker.torchrun_pid is not None:
        kill_group(worker.torchrun_pid)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number belongs to someone else by now
    return True


async def _wait_for(events: list[asyncio.Event], timeout_s: float) -> None:
    """Until all are set or the time is over."""
    if not events:
        return
    waits = [asyncio.create_task(event.wait()) for event in events]
    _, pending = await asyncio.wait(waits, timeout=timeout_s)
    for wait in pending:
        wait.cancel()
