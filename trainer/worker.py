"""Entry of one training worker: `python -m everstep.trainer.worker --config run.yaml`.

Also run by `runpy` inside a process forked from a warm parent, so nothing happens at import. The process ends through
`os._exit` after flushing: what a broken process group leaves behind could otherwise hang the interpreter's exit.
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

_LOGGER = logging.getLogger("everstep.trainer")
_PEER_LOSS_SIGNS = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "timed out waiting",
    "application timeout caused pair closure",
    "connectfullmesh failed",
    "connection refused",
    "socket timeout",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and return the exit code of `everstep.core.exits`; the last line on standard error says why."""
    from everstep.core.exits import WorkerExit, exit_reason

    parser = argparse.ArgumentParser(prog="everstep.trainer.worker", description="Train as one rank of a job.")
    parser.add_argument("--config", type=Path, required=True, help="YAML file, for example run.yaml")
    options = parser.parse_args(arguments)
    code, why = _train(options.config)
    if code is not WorkerExit.SUCCESS:
        sys.stderr.write(f"everstep worker: exit {int(code)} reason={exit_reason(code)}: {why}\n")
    return code


def _train(path: Path) -> tuple[int, str]:
    from torch.distributed.checkpoint.api import CheckpointException

    from everstep.core.errors import EverstepError
    from everstep.core.exits import WorkerExit
    from everstep.trainer.config import load
    from everstep.trainer.environment import WorkerEnvironment
    from everstep.trainer.loop import NonFiniteLossError
    from everstep.trainer.session import train
    from everstep.trainer_integration import EverstepCallback

    callback = EverstepCallback()
    try:
        config = load(path)
        environment = WorkerEnvironment.read()
        callback = EverstepCallback.from_environment()
        try:
            train(config, environment, callback)
        except NonFiniteLossError as error:
            if environment.attempt is not None:
                _await_verdict(config.timeouts.nonfinite_s, str(error))
            raise
    except EverstepError as error:
        return exit_code(error), str(error)
    except (Exception, CheckpointException) as error:
        _LOGGER.exception("the worker ends")
        return exit_code(error), f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    finally:
        callback.close()
    return WorkerExit.SUCCESS, ""


def exit_code(error: BaseException) -> int:
    """The code of `everstep.core.exits` for what ended the training."""
    from everstep.core.errors import ConfigError, ManifestError
    from everstep.core.exits import WorkerExit
    from everstep.trainer.checkpoint.choice import CheckpointError
    from everstep.trainer.checkpoint.fence import FencedError
    from everstep.trainer.checkpoint.resume import LoadError
    from everstep.trainer.data import DataError
    from everstep.trainer.loop import NonFiniteLossError

    if isinstance(error, LoadError) and is_peer_loss(error):
        return WorkerExit.PEER_LOST
    by_type: tuple[tuple[type[BaseException], WorkerExit], ...] = (
        (NonFiniteLossError, WorkerExit.NONFINITE),
        (FencedError, WorkerExit.FENCED),
        (CheckpointError, WorkerExit.CHECKPOINT),
        (ManifestError, WorkerExit.CHECKPOINT),
        (ConfigError, WorkerExit.USAGE),
        (DataError, WorkerExit.EXCEPTION),  # a store's broken connection is no lost peer
        (MemoryError, WorkerExit.OUT_OF_MEMORY),
    )
    for kind, code in by_type:
        if isinstance(error, kind):
            return code
    if _caused_by_full_disk(error):
        return WorkerExit.DISK_FULL
    return WorkerExit.PEER_LOST if is_peer_loss(error) else WorkerExit.EXCEPTION


def is_peer_loss(error: BaseException) -> bool:
    """Whether gloo or the store says that another rank is gone or silent. Torch has no type of its own for it.

    >>> is_peer_loss(RuntimeError("[pair.cc:534] Connection closed by peer [127.0.0.1]:4242"))
    True
    """
    text = "".join(traceback.format_exception(error)).lower()
    return any(sign in text for sign in _PEER_LOSS_SIGNS)


def _caused_by_full_disk(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in {errno.ENOSPC, errno.EDQUOT}:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _await_verdict(wait_s: float, why: str) -> None:
    """Hold still, so that the controller stops the attempt; the process ends by itself when nobody does."""
    _LOGGER.error("%s; waiting up to %g s for the controller", why, wait_s)
    threading.Event().wait(wait_s)


def run() -> None:
    """`main`, then the end of the process. SIGUSR1 writes every thread's stack to standard error."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
