"""A bounded folder on a local disk for shards that no longer fit in memory; what it holds survives a restart.

A cache, not a store: every file carries a checksum, a damaged or vanished one is a miss, and a disk that is full or
broken only means that nothing more is written.
"""

from __future__ import annotations

import hashlib
import logging
import struct
import zlib
from collections import OrderedDict
from pathlib import Path

from everstep.trainer.data.shard import Shard

_LOGGER = logging.getLogger("everstep.trainer")
_HEADER = struct.Struct("<8sQI")
_MAGIC = b"EVSHARD1"
_SUFFIX = ".shard"


class SpillFolder:
    """Least recently used files leave first. Used by one thread; `holds` by any. Not shared between processes."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._writable = True
        self.num_bytes = 0
        self.num_damaged = 0
        self._open()

    def holds(self, shard: Shard) -> bool:
        return _key(shard) in self._sizes

    def get(self, shard: Shard) -> bytes | None:
        """The content, or None when it is not here or does not verify."""
        key = _key(shard)
        if key not in self._sizes:
            return None
        try:
            raw = (self._folder / key).read_bytes()
        except OSError as error:
            self._damaged(key, shard, str(error.strerror))
            return None
        content = raw[_HEADER.size :]
        if raw[: _HEADER.size] != _header(content) or len(content) != shard.size:
            self._damaged(key, shard, "checksum differs")
            return None
        self._sizes.move_to_end(key)
        return content

    def put(self, shard: Shard, content: bytes) -> bool:
        """Whether it is kept."""
        key, size = _key(shard), len(content) + _HEADER.size
        if key in self._sizes:
            self._sizes.move_to_end(key)
            return True
        if not self._writable or size > self._max_bytes:
            return False
        while self.num_bytes + size > self._max_bytes:
            self._drop(next(iter(self._sizes)))
        return self._write(key, content)

    def _open(self) -> None:
        """Take over what an earlier process left, oldest first, and cut it to the bound."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for torn in self._folder.glob("*.part"):
                torn.unlink(missing_ok=True)
            found = sorted((path.stat().st_mtime_ns, path) for path in self._folder.glob(f"*{_SUFFIX}"))
            for _, path in found:
                self._keep(path.name, path.stat().st_size)
        except OSError as error:
            self._give_up(error)
        while self.num_bytes > self._max_bytes:
            self._drop(next(iter(self._sizes)))

    def _write(self, key: str, content: bytes) -> bool:
        part = self._folder / f"{key}.part"
        try:
            with part.open("wb") as file:
                file.write(_header(content))
                file.write(content)
            part.rename(self._folder / key)
        except OSError as error:
            self._give_up(error)
            _remove(part)
            return False
        self._keep(key, len(content) + _HEADER.size)
        return True

    def _give_up(self, error: OSError) -> None:
        if self._writable:
            _LOGGER.warning(
                "cannot spill shards to %s (%s); the cache goes on in memory alone",
                self._folder,
                error.strerror or error,
            )
        self._writable = False

    def _damaged(self, key: str, shard: Shard, why: str) -> None:
        _LOGGER.warning("spilled shard %s is not usable (%s) and is read from the store again", shard.name, why)
        self.num_damaged += 1
        self._drop(key)

    def _keep(self, key: str, size: int) -> None:
        self._sizes[key] = size
        self.num_bytes += size

    def _drop(self, key: str) -> None:
        self.num_bytes -= self._sizes.pop(key)
        _remove(self._folder / key)


def _key(shard: Shard) -> str:
    """File name; another version of a shard is another file."""
    words = f"{shard.name}\0{shard.size}\0{shard.version}".encode(errors="surrogateescape")
    return hashlib.blake2b(words, digest_size=16).hexdigest() + _SUFFIX


def _header(content: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(content), zlib.crc32(content))


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _LOGGER.warning("cannot delete %s (%s)", path, error.strerror)
