"""The disk tier: whole checkpoints on shared storage, written by torch's DCP and committed by a manifest."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from everstep.core import manifest
from everstep.core.errors import ManifestError
from everstep.core.manifest import FileSum, Manifest
from everstep.trainer.checkpoint.fence import Fence
from everstep.trainer.state import TrainState, random_state, restore_random_state


def disk_folder(directory: Path, *, step: int, attempt: int) -> Path:
    return directory / f"step-{step}-attempt-{attempt}"


def disk_checkpoints(directory: Path) -> Iterator[tuple[int, int, Path]]:
    """Every (attempt, step, folder) on disk that has a manifest, unverified."""
    for folder in directory.glob("step-*-attempt-*"):
        step, _, attempt = folder.name.removeprefix("step-").partition("-attempt-")
        if step.isdigit() and attempt.isdigit() and (folder / manifest.MANIFEST).exists():
            yield int(attempt), int(step), folder


class DiskTier:
    """Saves and loads whole checkpoints; all ranks call each method together."""

    def __init__(self, directory: Path, *, rank: int, keep: int, fence: Fence, group: dist.ProcessGroup) -> None:
        self._directory = directory
        self._rank = rank
        self._keep = keep
        self._fence = fence
        self._group = group

    def save(self, tensors: Mapping[str, Tensor], commit: Manifest) -> None:
        """Write, checksum and commit. Raises `FencedError` before anything is written, `OSError` on a full disk."""
        self._fence.check()
        folder = disk_folder(self._directory, step=commit.step, attempt=commit.attempt)
        folder.mkdir(parents=True, exist_ok=True)
        writer = FileSystemWriter(folder, single_file_per_rank=True, sync_files=True)
        save(dict(tensors), storage_writer=writer, process_group=self._group)
        (folder / f"random-{self._rank}.txt").write_text(random_state())
        sums: list[dict[str, FileSum] | None] = [None] * commit.world_size
        dist.all_gather_object(sums, self._own_sums(folder), group=self._group)
        if self._rank == 0:
            files = {name: entry for part in sums if part for name, entry in part.items()}
            self._fence.check()
            manifest.commit(folder, replace(commit, files=files), durable=True)
            self.prune()
        dist.barrier(group=self._group)

    def _own_sums(self, folder: Path) -> dict[str, FileSum]:
        names = [f"random-{self._rank}.txt", *(path.name for path in folder.glob(f"__{self._rank}_*.distcp"))]
        if self._rank == 0:
            names.append(".metadata")
        return {name: manifest.checksum(folder / name) for name in names}

    def prune(self) -> None:
        """Drop all but the newest `keep`, and nothing at all unless one of those verifies."""
        newest = sorted(disk_checkpoints(self._directory), reverse=True)
        kept = newest[: self._keep]
        if len(newest) > len(kept) and any(_verifies(folder) for _, _, folder in kept):
            for _, _, folder in newest[self._keep :]:
                shutil.rmtree(folder, ignore_errors=True)

    def load(self, folder: Path, tensors: Mapping[str, Tensor]) -> TrainState:
        """Fill the tensors from a verified checkpoint, cut anew when the world size differs. Raises `ManifestError`."""
        found = manifest.read(folder)
        load(dict(tensors), storage_reader=FileSystemReader(folder), process_group=self._group)
        random = folder / f"random-{self._rank}.txt"
        if random.exists():
            restore_random_state(random.read_text())
        return TrainState.from_json(found.position)


def _verifies(folder: Path) -> bool:
    try:
        manifest.verify(folder)
    except ManifestError:
        return False
    return True
