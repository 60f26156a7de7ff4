"""Watching: what the kernel, the rank records and the parents say about the workers becomes facts in the table."""

from __future__ import annotations

import signal
from pathlib import Path

from everstep.collector.cold_end import cold_exit_code
from everstep.collector.ending import Ender
from everstep.collector.exit_reason import read_tail
from everstep.collector.node_state import NodeState
from everstep.collector.process_state import ProcessState, read_process, same_process
from everstep.collector.records import RecordChange
from everstep.collector.standby_link import Child, StandbyLink
from everstep.collector.starting import worker_of
from everstep.collector.workers import StoreProcess, Worker


class Watch:
    """A `ChildListener`; `poll` is cheap enough for ten times a second."""

    def __init__(self, state: NodeState, ender: Ender) -> None:
        self._state = state
        self._ender = ender
        self._orphans: set[Worker] = set()

    def poll(self) -> None:
        """Look at the records and at every living worker's process; ask for a push when something important changed."""
        news = [change for change in self._state.records.poll() if self._note_record(change)]
        turns = [worker for worker in self._state.table.alive() if self._look_at(worker)]
        if news or turns:
            self._state.wake()

    def _note_record(self, change: RecordChange) -> bool:
        worker = self._state.table.get(change.job, change.rank)
        if worker is None or not worker.alive or worker.attempt != change.attempt:
            return change.nonfinite
        first = not worker.reporting
        if first and worker.cold:
            reading = read_process(change.pid)
            worker.pid = change.pid
            worker.started_ticks = reading.started_ticks if reading is not None else 0
        worker.reporting = True
        return first or change.nonfinite

    def _look_at(self, worker: Worker) -> bool:
        """Whether the worker has just been stopped or continued."""
        reading = read_process(worker.pid)
        alive = (
            reading is not None
            and reading.started_ticks == worker.started_ticks
            and reading.state is not ProcessState.ENDED
        )
        if reading is None or not alive:
            if worker.cold and worker.reporting:
                self._ender.note_end(worker, _cold_code(worker))
            elif worker in self._orphans:
                self._orphans.discard(worker)
                self._ender.note_end(worker, -signal.SIGKILL)
            return False  # the parent of a warm worker tells the status in a moment
        if worker.inspected:
            return False
        # A debugger's stop is a stop as far as training is concerned.
        now = ProcessState.STOPPED if reading.state is ProcessState.TRACED else reading.state
        before, worker.process = worker.process, now
        return (before is ProcessState.STOPPED) != (now is ProcessState.STOPPED)

    def adopted(self, child: Child) -> None:
        """A child that the parent had before this agent came."""
        tag = child.tag
        if tag["attempt"] < self._state.fence.highest(tag["job"]):
            return
        if tag["kind"] == "store":
            self._adopt_store(child)
        elif tag["kind"] == "torchrun":
            for one in tag["workers"]:
                self._adopt(worker_of(child.pid, one, torchrun=Path(tag["log"])), child.status)
        else:
            self._adopt(worker_of(child.pid, dict(tag)), child.status)

    def _adopt(self, worker: Worker, status: int | None) -> None:
        known = self._state.table.get(worker.job, worker.rank)
        if known is not None and known.attempt >= worker.attempt:
            if known.pid == worker.pid:
                self._orphans.discard(known)
                if status is not None:
                    self._ender.note_end(known, status)
            return
        self._state.fence.advance(worker.job, worker.attempt)
        self._state.table.add(worker)
        if status is not None:
            self._ender.note_end(worker, _cold_code(worker, status) if worker.cold else status)

    def _adopt_store(self, child: Child) -> None:
        tag = child.tag
        if child.status is None and "port" in tag:
            self._state.stores[tag["job"]] = StoreProcess(
                job=tag["job"],
                attempt=tag["attempt"],
                pid=child.pid,
                port=tag["port"],
                launcher=tag["launcher"],
            )

    def ended(self, child: Child) -> None:
        """The parent has reaped a child."""
        if child.tag["kind"] == "store":
            self._forget_store(child)
            return
        status = child.status if child.status is not None else 1
        for worker in self._state.table.of_job(child.tag["job"]):
            if worker.alive and worker.torchrun_pid == child.pid:
                self._ender.note_end(worker, _cold_code(worker, status))
            elif worker.alive and not worker.cold and worker.pid == child.pid:
                self._ender.note_end(worker, status)

    def _forget_store(self, child: Child) -> None:
        store = self._state.stores.get(child.tag["job"])
        if store is not None and store.pid == child.pid:
            store.gone.set()
            del self._state.stores[child.tag["job"]]

    def parent_changed(self, job: str) -> None:
        del job
        self._state.wake()

    def parent_lost(self, link: StandbyLink) -> None:
        """The kernel kills a dead parent's children, some a moment after its socket; their statuses died with it."""
        for worker in self._state.table.alive():
            if worker.launcher != link.name:
                continue
            if same_process(worker.pid, worker.started_ticks):
                self._orphans.add(worker)
            else:
                self._ender.note_end(worker, -signal.SIGKILL)
        for job, store in list(self._state.stores.items()):
            if store.launcher == link.name:
                store.gone.set()
                del self._state.stores[job]


def _cold_code(worker: Worker, torchrun_status: int | None = None) -> int:
    words = read_tail(worker.torchrun_log) if worker.torchrun_log is not None else ""
    return cold_exit_code(worker.log, worker.pid, words, torchrun_status)
