"""The first and last lines that run inside a worker: detach, log, run the program as `python` would, leave a clear end.

Used by a child that the warm parent has just forked and, as `python -m everstep.collector.worker_entry`, by a worker
that torchrun started. Standard library only.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded in the parent: a forked child must not open libraries first
LOG_VARIABLE = "EVERSTEP_WORKER_LOG"
LAUNCHER_VARIABLE = "EVERSTEP_LAUNCHER_PID"


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when the parent ends; leaves at once when that has happened already."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(70)


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that it can reap them."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def exit_file(log: Path) -> Path:
    """Where a cold worker leaves its exit code; absent after a death by signal."""
    return log.with_suffix(".exit")


def redirect(log: Path) -> None:
    """Standard output and error into the log, line by line, so that a killed worker's last words are there."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (fd, 1), (fd, 2)):
        os.dup2(source, target)
    os.close(fd)
    os.close(nothing)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - fd 1 for the process' lifetime
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115


def reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # what the interpreter itself sets at start
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def enable_stack_dumps() -> None:
    """SIGUSR1 writes every thread's stack to the log; so do fatal signals."""
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True, chain=False)


def run_program(argv: Sequence[str]) -> None:
    """Run `script arguments` or `-m module arguments` as `__main__`. Raises what the program raises."""
    if argv[0] == "-m":
        sys.argv = list(argv[1:])
        sys.path[0] = str(Path.cwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = list(argv)
    sys.path[0] = str(Path(argv[0]).resolve().parent)
    runpy.run_path(argv[0], run_name="__main__")


def _status_of(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)  # noqa: T201 - what the interpreter does with a message
    return 1


def _join_threads() -> None:
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()  # the interpreter waits for them without a limit, too; the agent can kill us


def exit_status(program: Callable[[], None]) -> int:
    """The exit status that the interpreter would end with; an uncaught exception leaves its traceback in the log."""
    try:
        program()
        _join_threads()
        status = 0
    except SystemExit as error:
        status = _status_of(error)
    except KeyboardInterrupt:
        status = 130
    except BaseException:  # noqa: BLE001 - the process boundary: traceback to the log, status 1
        sys.excepthook(*sys.exc_info())  # torch's hook names the rank
        status = 1
    return status


def finish(status: int) -> None:
    """Run exit handlers, flush and leave; nothing of the forking parent runs afterwards."""
    atexit._run_exitfuncs()  # noqa: SLF001 - os._exit would skip them; there is no public way to run them
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def run_forked(argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    """The whole life of a freshly forked worker; does not return."""
    status = 70
    try:
        os.environ.update(environment)
        redirect(log)
        enable_stack_dumps()
        _reseed()
        status = exit_status(lambda: run_program(argv))
    except BaseException:  # noqa: BLE001 - the process boundary: a child must never run on as a second parent
        traceback.print_exc()
    finally:
        finish(status)


def _reseed() -> None:
    """Forked siblings would otherwise draw the same numbers; `random` does this by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _note_exit(note: Path) -> None:
    """Leave the exit status in a file on the way out, also for a program that itself leaves through `os._exit`."""
    leave, worker = os._exit, os.getpid()

    def noted(status: int) -> NoReturn:
        if os.getpid() == worker:  # not in a child that the program forks
            note.write_text(str(status))
        leave(status)

    os._exit = noted


def main() -> None:
    """Entry of a torchrun worker: rank record, memory and log paths depend on the rank that torchrun chose."""
    rank = os.environ["RANK"]
    folder = Path(os.environ[LOG_VARIABLE])
    log = folder / f"rank-{rank}.log"
    os.environ["EVERSTEP_RANK_RECORD"] = str(Path(os.environ["EVERSTEP_RANK_RECORD"]) / f"rank-{rank}.rec")
    os.environ["TORCHELASTIC_RESTART_COUNT"] = os.environ["EVERSTEP_ATTEMPT"]
    die_with_parent(int(os.environ[LAUNCHER_VARIABLE]))
    redirect(log)
    enable_stack_dumps()
    _note_exit(exit_file(log))
    arguments = sys.argv[1:]
    finish(exit_status(lambda: run_program(arguments)))


if __name__ == "__main__":
    main()
