"""The memory tier: this rank's shard on its own node's tmpfs, and a copy on the next rank's node."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from everstep.core import manifest
from everstep.core.manifest import FileSum, Manifest
from everstep.trainer.checkpoint.fence import Fence
from everstep.trainer.checkpoint.shard import SHARD_FILE

_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRoot:
    """The layout `step-<n>/attempt-<a>/rank-<r>` below one node's memory directory."""

    path: Path

    def shard(self, *, step: int, attempt: int, rank: int) -> Path:
        return self.path / f"step-{step}" / f"attempt-{attempt}" / f"rank-{rank}"

    def snapshots(self) -> Iterator[tuple[int, int, Path]]:
        """Every (attempt, step, directory), whether complete or not."""
        for folder in self.path.glob("step-*/attempt-*"):
            step, attempt = folder.parent.name.removeprefix("step-"), folder.name.removeprefix("attempt-")
            if step.isdigit() and attempt.isdigit():
                yield int(attempt), int(step), folder

    def remove(self, folder: Path) -> None:
        """Drop one snapshot and its step directory when nothing else is in it."""
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another attempt's snapshot of the same step stays
            folder.parent.rmdir()

    def prune(self, keep: int) -> None:
        """Drop all but the newest `keep` snapshots of this node."""
        for _, _, folder in sorted(self.snapshots(), reverse=True)[keep:]:
            self.remove(folder)

    def forget(self, *, before_attempt: int, beyond_step: int) -> None:
        """Drop what older attempts wrote beyond the step that this one resumed from."""
        for attempt, step, folder in list(self.snapshots()):
            if attempt < before_attempt and step > beyond_step:
                self.remove(folder)


class MemoryTier:
    """Writes snapshots; all ranks call `save` together."""

    def __init__(
        self, root: MemoryRoot, *, rank: int, prunes: bool, keep: int, fence: Fence, group: dist.ProcessGroup | None
    ) -> None:
        """`prunes` on one rank of each node; `group` is the traffic's own group, None on a single rank."""
        self._root = root
        self._rank = rank
        self._prunes = prunes
        self._keep = keep
        self._fence = fence
        self._group = group

    def save(self, shard: Tensor, commit: Manifest) -> None:
        """Store the shard here and on the buddy. On return of every rank the step is committed on two nodes.

        Raises `FencedError` before anything is written, and `OSError` when this node has no room: only after the ranks
        have exchanged everything, so that no other rank waits and training can go on without this snapshot.
        """
        self._fence.check()
        data = shard.numpy().data
        digest = FileSum(size=len(data), sha256=hashlib.sha256(data).hexdigest())
        commit = replace(commit, files={SHARD_FILE: digest})
        sending = self._send(shard, commit)
        problems = [self._stored(commit, data), self._receive(commit)]
        for work in sending:
            work.wait()
        for problem in problems:
            if problem is not None:
                raise problem  # and nothing is pruned: what is there may be all that is left
        if self._prunes:
            self._root.prune(self._keep)

    def _stored(self, commit: Manifest, data: memoryview) -> OSError | None:
        """What kept the shard from being stored; nothing of it is left then."""
        rank = self._rank if commit.rank is None else commit.rank
        folder = self._root.shard(step=commit.step, attempt=commit.attempt, rank=rank)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_bytes(folder / SHARD_FILE, data)
            manifest.commit(folder, commit, durable=False)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # another rank's shard stays
                folder.parent.rmdir()
                folder.parent.parent.rmdir()
            return error
        return None

    def _send(self, shard: Tensor, commit: Manifest) -> list[dist.Work]:
        if self._group is None:
            return []
        buddy = (self._rank + 1) % commit.world_size
        head = torch.zeros(_HEAD_BYTES, dtype=torch.uint8)
        text = json.dumps({"size": len(shard), "sha256": commit.files[SHARD_FILE].sha256}).encode()
        head[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        works = [dist.isend(part, buddy, group=self._group, tag=tag) for tag, part in enumerate((head, shard))]
        return [work for work in works if work is not None]

    def _receive(self, own: Manifest) -> OSError | None:
        if self._group is None:
            return None
        source = (self._rank - 1) % own.world_size
        head = torch.empty(_HEAD_BYTES, dtype=torch.uint8)
        dist.recv(head, source, group=self._group, tag=0)
        entry = FileSum(**json.loads(bytes(head.numpy()).rstrip(b"\0")))
        shard = torch.empty(entry.size, dtype=torch.uint8)
        dist.recv(shard, source, group=self._group, tag=1)
        copy = replace(own, rank=source, files={SHARD_FILE: entry})
        return self._stored(copy, shard.numpy().data)


def write_bytes(path: Path, data: memoryview) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        at = 0
        while at < len(data):
            at += os.write(fd, data[at:])
    finally:
        os.close(fd)


def read_bytes(path: Path) -> Tensor:
    """A file as a writable uint8 tensor. Raises `OSError`."""
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
