"""Checkpoint commit marks: a checkpoint exists only through a manifest whose checksums agree with its files.

Both tiers use the same format. A memory-tier shard is a directory `memory/<job>/step-<n>/attempt-<a>/rank-<r>/` on a
node, a disk checkpoint a directory `step-<n>-attempt-<a>/` on shared storage; each holds its files and `manifest.json`,
written last by an atomic rename. The trainer writes manifests, the agent and the trainer verify them. Standard library
only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from everstep.core.errors import ManifestError

MANIFEST = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSum:
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`rank` is None for a disk checkpoint. `position` is the data position after the step; `layout` the mesh."""

    job: str
    step: int
    attempt: int
    world_size: int
    rank: int | None
    position: Mapping[str, Any]
    layout: Mapping[str, int]
    files: Mapping[str, FileSum]
    format: int = FORMAT


def checksum(path: Path) -> FileSum:
    """SHA-256 and size of a file. Raises `OSError`."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileSum(size=file.tell(), sha256=digest)


def commit(directory: Path, manifest: Manifest, *, durable: bool) -> None:
    """Write the manifest by atomic rename; `durable` also flushes it and the directory to disk."""
    fresh = directory / f".{MANIFEST}.{os.getpid()}"
    with fresh.open("w") as file:
        json.dump(asdict(manifest), file)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.rename(directory / MANIFEST)
    if durable:
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def read(directory: Path) -> Manifest:
    """Raises `ManifestError` when there is no manifest or it is not one."""
    path = directory / MANIFEST
    try:
        data = json.loads(path.read_bytes())
        files = {name: FileSum(**entry) for name, entry in data.pop("files").items()}
        manifest = _checked(Manifest(files=files, **data))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ManifestError(
            f"{directory} holds no usable manifest ({type(error).__name__})", mend="use an older checkpoint"
        ) from error
    if manifest.format != FORMAT:
        raise ManifestError(f"{path} has format {manifest.format}", mend=f"read it with a version that writes {FORMAT}")
    return manifest


def _checked(manifest: Manifest) -> Manifest:
    """Raises `TypeError` or `ValueError` for values that a writer of this format never writes."""
    numbers = (manifest.step, manifest.attempt, manifest.world_size, manifest.rank or 0, manifest.format)
    if not all(isinstance(number, int) for number in numbers) or not isinstance(manifest.job, str):
        raise TypeError("a field has the wrong type")
    if not manifest.files:
        raise ValueError("it names no file: nothing would be verified, and there is nothing to load")
    for name in manifest.files:
        if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name!r} is not a name inside the checkpoint")
    return manifest


def verify(directory: Path) -> Manifest:
    """The manifest, after each file's size and checksum was compared. Raises `ManifestError` naming a bad file."""
    manifest = read(directory)
    for name, expected in manifest.files.items():
        try:
            found = checksum(directory / name)
        except OSError as error:
            raise ManifestError(
                f"{directory / name} cannot be read ({error.strerror})", mend="use another copy"
            ) from error
        if found != expected:
            raise ManifestError(f"{directory / name} is damaged (checksum differs)", mend="use another copy")
    return manifest


def committed(root: Path) -> Iterator[Path]:
    """Directories below `root` that hold a manifest, in no order; what vanishes meanwhile is left out."""
    for path, folders, files in os.walk(root):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        if MANIFEST in files:
            yield Path(path)
