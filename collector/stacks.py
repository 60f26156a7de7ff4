"""Stacks of living workers: py-spy from outside, faulthandler from inside where py-spy may not. Bounded in time."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time

from everstep.collector.process_state import ProcessState, read_process, send_signal
from everstep.collector.workers import Worker

DUMP_TIMEOUT_S = 2.0
_LOOK_INTERVAL_S = 0.05


async def dump_stacks(workers: list[Worker]) -> dict[str, str]:
    """Text for each rank; says why when there is none."""
    texts = await asyncio.gather(*(_dump(worker) for worker in workers))
    return {str(worker.rank): text for worker, text in zip(workers, texts, strict=True)}


async def _dump(worker: Worker) -> str:
    worker.inspected = True  # py-spy stops the process for a moment: that is no symptom
    try:
        text, problem = await _from_outside(worker)
    finally:
        worker.inspected = False
    if text:
        return text
    if worker.process is ProcessState.STOPPED:
        return f"no stack: the process is stopped and py-spy failed ({problem})"
    return await _from_inside(worker) or f"no stack: py-spy failed ({problem}), faulthandler gave nothing"


async def _from_outside(worker: Worker) -> tuple[str, str]:
    """(stacks, problem); one of them is empty."""
    stopped = worker.process is ProcessState.STOPPED
    arguments = ["dump", "--pid", str(worker.pid), *(["--nonblocking"] if stopped else [])]
    try:
        dump = await asyncio.create_subprocess_exec(
            "py-spy", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        return "", f"py-spy cannot be run: {error.strerror}"
    try:
        async with asyncio.timeout(DUMP_TIMEOUT_S):
            out, errors = await dump.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            dump.kill()
        await dump.wait()
        return "", f"no answer within {DUMP_TIMEOUT_S:g} s"
    if dump.returncode == 0 and out.strip():
        return out.decode(errors="replace"), ""
    return "", errors.decode(errors="replace").strip().splitlines()[0] if errors.strip() else "no output"


async def _from_inside(worker: Worker) -> str:
    """What the worker's own SIGUSR1 handler appends to its log."""
    reading = read_process(worker.pid)
    if reading is None or not worker.log.exists():
        return ""
    start = worker.log.stat().st_size
    if not send_signal(worker.pid, worker.started_ticks, signal.SIGUSR1):
        return ""
    deadline = time.monotonic() + DUMP_TIMEOUT_S
    size = start
    while time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_INTERVAL_S)
        grown = worker.log.stat().st_size
        if start < grown == size:
            break
        size = grown
    with worker.log.open("rb") as file:
        file.seek(start)
        return file.read(1 << 20).decode(errors="replace")
