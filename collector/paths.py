"""Where the agent keeps what: run_dir (tmpfs, private to the user) and log_dir."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

from everstep.core.errors import ConfigError, EverstepError

_LONGEST_SOCKET_PATH = 107  # sun_path of unix(7), less its final zero


def clean_abandoned(run_dir: Path, job: str) -> None:
    """What a warm parent removes when its agent has died and none came back: nobody else will. A cordon stays."""
    for path in (run_dir / "records" / job, run_dir / "memory" / job):
        shutil.rmtree(path, ignore_errors=True)
    (run_dir / f"attempt-{job}").unlink(missing_ok=True)
    lock_file = run_dir / "agent.lock"
    try:
        lock = os.open(lock_file, os.O_RDWR)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock_file.unlink(missing_ok=True)
    except OSError:
        return  # an agent that does not know this job lives here
    finally:
        os.close(lock)
    _remove_empty(run_dir)


def _remove_empty(run_dir: Path) -> None:
    for folder in (run_dir / "records", run_dir / "memory", run_dir):
        with contextlib.suppress(OSError):  # not empty or not ours: it stays
            folder.rmdir()


class NodePaths:
    """All paths of one agent; two agents on one `run_dir` are kept apart by a lock."""

    def __init__(self, run_dir: Path, log_dir: Path) -> None:
        self.run_dir = run_dir.absolute()
        self.log_dir = log_dir.absolute()
        self._lock: int | None = None

    def records(self, job: str) -> Path:
        return self.run_dir / "records" / job

    def record(self, job: str, rank: int) -> Path:
        return self.records(job) / f"rank-{rank}.rec"

    def memory(self, job: str) -> Path:
        return self.run_dir / "memory" / job

    def attempt_file(self, job: str) -> Path:
        return self.run_dir / f"attempt-{job}"

    @property
    def cordon_file(self) -> Path:
        return self.run_dir / "cordoned"

    @property
    def gpu_count_file(self) -> Path:
        """In `log_dir`, since it outlives a restart of the node."""
        return self.log_dir / "gpus-seen"

    def socket(self, name: str) -> Path:
        """Raises `ConfigError` when the kernel could not take the path."""
        path = self.run_dir / f"{name}.sock"
        if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
            raise ConfigError(
                f"socket path {path} is longer than {_LONGEST_SOCKET_PATH} bytes",
                mend="choose a shorter agent.run_dir",
            )
        return path

    def logs(self, job: str, attempt: int) -> Path:
        return self.log_dir / job / f"attempt-{attempt}"

    def prepare(self) -> None:
        """Create both folders and take the lock. Raises `EverstepError` naming the folder and the mend."""
        for key, folder in (("run_dir", self.run_dir), ("log_dir", self.log_dir)):
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                probe = folder / f".probe-{os.getpid()}"
                probe.touch()
                probe.unlink()
            except OSError as error:
                raise ConfigError(
                    f"cannot write to agent.{key} {folder} ({error.strerror})",
                    mend=f"create it for this user or set agent.{key} to a folder you may write to",
                ) from error
        self._take_lock()

    def _take_lock(self) -> None:
        path = self.run_dir / "agent.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise EverstepError(
                f"another agent (pid {owner or 'unknown'}) uses agent.run_dir {self.run_dir}",
                mend="stop it or give this agent a run_dir of its own",
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def clean(self, jobs: list[str]) -> None:
        """Remove what this agent owns in `run_dir`."""
        for job in jobs:
            for path in (self.records(job), self.memory(job)):
                shutil.rmtree(path, ignore_errors=True)
            self.attempt_file(job).unlink(missing_ok=True)
        self.cordon_file.unlink(missing_ok=True)

    def release(self) -> None:
        """Give the lock back, and the folders when they are empty."""
        if self._lock is not None:
            (self.run_dir / "agent.lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None
        _remove_empty(self.run_dir)
