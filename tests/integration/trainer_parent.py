"""A warm parent for the trainer's tests: preloads once, then forks one worker for each JSON line on its input.

Input: {"environment": {...}, "arguments": [...], "log": path}. Output: {"pid": n}, later {"pid": n, "code": c}.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import sys

import everstep.trainer.preload  # noqa: F401 - what this process is for


def _worker(order: dict[str, object]) -> None:
    log = os.open(str(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["environment"])  # type: ignore[call-overload]
    sys.argv = ["worker", *order["arguments"]]  # type: ignore[misc]
    try:
        runpy.run_module("everstep.trainer.worker", run_name="__main__", alter_sys=True)
    finally:
        os._exit(99)


def _say(message: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    children: set[int] = set()
    _say({"pid": os.getpid()})
    while True:
        ready, _, _ = select.select([0], [], [], 0.02)
        if ready:
            line = sys.stdin.buffer.raw.readline()  # type: ignore[attr-defined]
            if not line:
                return
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                _worker(order)
            children.add(pid)
            _say({"pid": pid})
        for pid in list(children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                children.discard(pid)
                _say({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    main()
