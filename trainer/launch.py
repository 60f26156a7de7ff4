"""`everstep train` without a controller: one node's workers through torchrun with static membership."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from everstep.core.errors import ConfigError
from everstep.trainer.config import load

STOP_TIMEOUT_S = 40.0
INTERRUPTED = 130
_PR_SET_PDEATHSIG = 1


def run(config: Path, processes: int) -> int:
    """Train with so many processes on this machine and return torchrun's exit code, `INTERRUPTED` after Ctrl-C.

    Raises `ConfigError`.
    """
    if processes < 1:
        raise ConfigError(f"cannot train with {processes} processes", mend="give at least 1")
    load(config)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["--max-restarts=0", "-m", "--", "everstep.trainer.worker", "--config", str(config)]
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} | dict(os.environ)
    bound = partial(_end_with, os.getpid(), ctypes.CDLL(None))
    with subprocess.Popen(command, env=environment, preexec_fn=bound) as torchrun:  # noqa: PLW1509 - one thread here
        try:
            return torchrun.wait()
        except KeyboardInterrupt:  # the terminal has interrupted torchrun too; it stops its workers within 30 s
            torchrun.wait(timeout=STOP_TIMEOUT_S)
            return INTERRUPTED
        finally:
            torchrun.kill()


def _end_with(parent: int, libc: ctypes.CDLL) -> None:
    """In the child: SIGTERM when the launcher dies in whatever way; torchrun hands it on to its workers."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
