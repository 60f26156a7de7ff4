"""A shard is one file of bytes in a store; a catalog is all of them in the order that sample ids follow."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from everstep.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """`size` in bytes; `version` changes when the store knows that the content did (an ETag, a modification time)."""

    name: str
    size: int
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """`fingerprint` tells a resumed run whether it reads the same text."""

    shards: tuple[Shard, ...]
    fingerprint: int

    @classmethod
    def of(cls, shards: Iterable[Shard], *, where: str) -> Catalog:
        """Sorted by name, fingerprinted by names and sizes. Raises `ConfigError` for none or an empty one."""
        ordered = tuple(sorted(shards, key=lambda shard: shard.name))
        if not ordered:
            raise ConfigError(f"there is no shard at {where}", mend="correct data.shards.url or data.shards.suffix")
        for shard in ordered:
            if shard.size == 0:
                raise ConfigError(
                    f"shard {shard.name} at {where} is empty", mend="write it again, or delete it and start anew"
                )
        lines = "".join(f"{shard.name}\0{shard.size}\n" for shard in ordered)
        return cls(shards=ordered, fingerprint=zlib.crc32(lines.encode(errors="surrogateescape")))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(shard.size for shard in self.shards)
