"""Network file systems: bytes of NFS and Lustre mounts, and the free share of a storage target."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep.collector.pseudo_files import PROC, SYS, label, names_in, read_text
from everstep.collector.samples import Sample
from everstep.core.errors import EverstepError

_NFS_MOUNT = re.compile(r"device (?P<device>\S+) mounted on (?P<folder>\S+) with fstype nfs[0-9]?\b")
_NFS_BYTES = re.compile(r"\s*bytes:((?:\s+[0-9]{1,20}){8})\s*", re.ASCII)
_SERVER_READ, _SERVER_WRITE = 4, 5  # what crossed the network; the first four also count what the cache answered
_OCTAL = re.compile(r"\\([0-7]{3})")
_LLITE = re.compile(r"^(read|write)_bytes +[0-9]+ samples \[bytes\] +[0-9]+ +[0-9]+ +([0-9]{1,20})\b", re.MULTILINE)
_LLITE_INSTANCE = re.compile(r"-[0-9a-f]{8,}$")


def _transferred(target: str, read: int, written: int) -> Iterator[Sample]:
    for direction, value in (("read", read), ("write", written)):
        yield Sample(
            metric="everstep_storage_transferred_bytes_total",
            labels=(("target", target), ("direction", direction)),
            value=float(value),
        )


class NfsMounts:
    """`<proc>/self/mountstats`. An export that is mounted in several places counts once, under the first one."""

    def __init__(self, proc: Path = PROC) -> None:
        self._path = proc / "self" / "mountstats"

    def collect(self) -> Iterable[Sample]:
        seen: set[str] = set()
        target = ""
        for line in read_text(self._path).split("\n"):
            if line.startswith("device "):
                target = _first_mount_point(line, seen)
            elif target and (found := _NFS_BYTES.fullmatch(line)):
                numbers = [int(number) for number in found[1].split()]
                yield from _transferred(target, numbers[_SERVER_READ], numbers[_SERVER_WRITE])
                target = ""


def _first_mount_point(line: str, seen: set[str]) -> str:
    """Empty for what is no NFS mount, or one of an export that was there already."""
    found = _NFS_MOUNT.match(line)
    if not found or found["device"] in seen:
        return ""
    seen.add(found["device"])
    return _OCTAL.sub(lambda code: chr(int(code[1], 8)), found["folder"])


class LustreMounts:
    """`llite/<file system>-<instance>/stats` of the client: in procfs in old releases, in debugfs (root) in newer."""

    def __init__(self, proc: Path = PROC, sys: Path = SYS) -> None:
        self._roots = (f"{proc}/fs/lustre/llite", f"{sys}/kernel/debug/lustre/llite")

    def collect(self) -> Iterable[Sample]:
        read: Counter[str] = Counter()
        written: Counter[str] = Counter()
        for path, target in self._instances():
            text = read_text(path)
            if not text.startswith("snapshot_time"):
                continue
            totals = {direction: int(total) for direction, total in _LLITE.findall(text)}
            read[target] += totals.get("read", 0)
            written[target] += totals.get("write", 0)
        for target in read:
            yield from _transferred(target, read[target], written[target])

    def _instances(self) -> list[tuple[str, str]]:
        for root in self._roots:
            found = [(f"{root}/{name}/stats", label(_LLITE_INSTANCE.sub("", name))) for name in names_in(root)]
            if found:
                return found
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFolder:
    """A folder to watch; one that is not `required` may be absent until its job makes it."""

    target: str
    path: Path
    required: bool = True

    def is_awaited(self) -> bool:
        """Whether there is nothing to look at yet."""
        return not self.required and not self.path.exists()


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """A refusal of the storage as the one line that the log gets."""
    try:
        yield
    except OSError as error:
        raise EverstepError(
            f"{path}: {error.strerror or error}", mend="look at the file system and at agent.probes.storage"
        ) from error


class FreeSpace:
    """Free share of one folder's file system for an ordinary user. May hang as the file system does."""

    def __init__(self, folder: StorageFolder) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Sample]:
        """Raises `EverstepError` when the folder cannot be reached."""
        if self._folder.is_awaited():
            return
        with storage_errors(self._folder.path):
            stat = os.statvfs(self._folder.path)
        for kind, free, all_of_them in (
            ("bytes", stat.f_bavail, stat.f_blocks),
            ("inodes", stat.f_favail, stat.f_files),
        ):
            if all_of_them > 0:  # btrfs and some network file systems do not count inodes
                yield Sample(
                    metric="everstep_filesystem_available_ratio",
                    labels=(("target", self._folder.target), ("kind", kind)),
                    value=min(free / all_of_them, 1.0),
                )
