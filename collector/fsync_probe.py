"""A small write, fsync and read in a storage folder, as a checkpoint does it. Blocks as long as the storage does."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

from everstep.collector.mounts import StorageFolder, storage_errors
from everstep.collector.samples import Sample
from everstep.collector.storage_latency import StorageLatency

PROBE_BYTES = 4096
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FsyncProbe:
    """One probe a `collect`, in a thread of its own. Yields nothing: `StorageLatency` tells what came of it.

    The file is named after the node, which has one agent: what a killed agent left is removed by the next probe.
    """

    def __init__(self, folder: StorageFolder, node: str, latency: StorageLatency) -> None:
        self._folder = folder
        self._path = folder.path / f".everstep-probe.{node}"
        self._latency = latency

    def collect(self) -> Iterable[Sample]:
        """Raises `EverstepError` when the storage refuses, is full, or does not read back what was written."""
        with storage_errors(self._folder.path):
            try:
                self._probe(os.urandom(PROBE_BYTES))
            except FileNotFoundError:
                if self._folder.required:
                    raise  # else the job has yet to make it
        return ()

    def _probe(self, content: bytes) -> None:
        try:
            self._write(content)
            with self._latency.timed("read"):
                found = _read_past_the_cache(self._path)
        finally:
            with self._latency.guarded("write"):
                self._remove()
        if found != content:
            raise OSError("does not read back what was written")

    def _write(self, content: bytes) -> None:
        with self._latency.timed("write"):
            self._remove()
            descriptor = os.open(self._path, _NEW_FILE, 0o600)
            try:
                _write_all(descriptor, content)
            except OSError:
                os.close(descriptor)
                raise
        try:
            with self._latency.timed("fsync"):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


def _write_all(descriptor: int, content: bytes) -> None:
    if os.write(descriptor, content) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read_past_the_cache(path: Path) -> bytes:
    """From the device where the file system can (O_DIRECT), else after the page cache was asked to forget it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:  # tmpfs and FUSE may refuse O_DIRECT
        return _read_forgotten(path)
    try:
        with mmap.mmap(-1, PROBE_BYTES) as page:  # direct reads want an aligned buffer
            return page[: os.preadv(descriptor, [page], 0)]
    finally:
        os.close(descriptor)


def _read_forgotten(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(descriptor, PROBE_BYTES, 0)
    finally:
        os.close(descriptor)
