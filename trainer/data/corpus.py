"""A small text held in memory as a whole: sorted *.py files, joined and cut to a bound."""

from __future__ import annotations

import os
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from everstep.core.errors import ConfigError
from everstep.trainer.config import DataConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """`fingerprint` tells a resumed run whether it reads the same text."""

    text: NDArray[np.uint8]
    fingerprint: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.text),)


def read_corpus(config: DataConfig) -> Corpus:
    """Raises `ConfigError` when there is no text at the configured place."""
    root = config.directory or Path(sysconfig.get_path("stdlib"))
    pieces: list[bytes] = []
    left = config.max_bytes
    for path in _sources(root):
        try:
            piece = path.read_bytes()[:left]
        except OSError as error:
            raise ConfigError(f"cannot read {path} ({error.strerror})", mend="check its permissions") from error
        pieces.append(piece)
        left -= len(piece)
        if left <= 0:
            break
    joined = b"".join(pieces)
    if not joined:
        raise ConfigError(f"there is no *.py text below {root}", mend="set data.directory to a folder that has some")
    return Corpus(text=np.frombuffer(joined, dtype=np.uint8), fingerprint=zlib.crc32(joined))


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in {"site-packages", "dist-packages", "test"})
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))
