"""Where shards come from: a folder, an object store, or memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from everstep.core.errors import ConfigError
from everstep.trainer.data.shard import Shard


class Store(Protocol):
    """Read by several threads at once. Errors are whatever the store raises; the reader judges and retries them."""

    def shards(self) -> Sequence[Shard]:
        """All shards in any order. Raises `ConfigError` when the place cannot be listed."""
        ...

    def read(self, shard: Shard) -> bytes: ...


class MemoryStore:
    """Texts by name; the double of the other stores in tests, and the home of a small corpus."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self._texts = texts

    def shards(self) -> Sequence[Shard]:
        return [Shard(name=name, size=len(text)) for name, text in self._texts.items()]

    def read(self, shard: Shard) -> bytes:
        try:
            return self._texts[shard.name]
        except KeyError:
            raise FileNotFoundError(shard.name) from None


class FolderStore:
    """Every file below a folder whose name ends with `suffix`; names that start with a dot are left out."""

    def __init__(self, root: Path, *, suffix: str = "") -> None:
        self._root = root
        self._suffix = suffix

    def shards(self) -> Sequence[Shard]:
        if not self._root.is_dir():
            raise ConfigError(f"there is no folder {self._root}", mend="correct data.shards.url")
        try:
            return [self._shard(path) for path in sorted(self._root.rglob("*")) if self._wanted(path)]
        except OSError as error:
            raise ConfigError(
                f"cannot list {self._root} ({error.strerror})", mend="check the permissions of the folder"
            ) from error

    def read(self, shard: Shard) -> bytes:
        return (self._root / shard.name).read_bytes()

    def _wanted(self, path: Path) -> bool:
        hidden = any(part.startswith(".") for part in path.relative_to(self._root).parts)
        return not hidden and path.name.endswith(self._suffix) and path.is_file()

    def _shard(self, path: Path) -> Shard:
        status = path.stat()
        name = path.relative_to(self._root).as_posix()
        return Shard(name=name, size=status.st_size, version=str(status.st_mtime_ns))


class UrlStore:
    """The same over fsspec: `s3://bucket/prefix`, `gs://`, `http://`, `memory://` and what else is installed."""

    def __init__(self, url: str, *, suffix: str = "") -> None:
        """Raises `ConfigError` when fsspec or the protocol's own package is missing."""
        try:
            from fsspec.core import url_to_fs

            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"cannot open {url} ({error})", mend="correct data.shards.url or install the package of its protocol"
            ) from error
        self._url = url
        self._suffix = suffix

    def shards(self) -> Sequence[Shard]:
        root = self._root.rstrip("/") + "/"
        try:
            found: Mapping[str, Mapping[str, Any]] = self._files.find(self._root, detail=True)
        except Exception as error:  # the clients of object stores share no error type
            raise ConfigError(
                f"cannot list {self._url} ({type(error).__name__}: {error})", mend="check the address and its access"
            ) from error
        return [_shard(path.removeprefix(root), entry) for path, entry in found.items() if path.endswith(self._suffix)]

    def read(self, shard: Shard) -> bytes:
        content: bytes = self._files.cat_file(self._root.rstrip("/") + "/" + shard.name)
        return content


def _shard(name: str, entry: Mapping[str, Any]) -> Shard:
    version = next((entry[key] for key in ("ETag", "etag", "mtime", "LastModified", "created") if entry.get(key)), "")
    return Shard(name=name, size=int(entry.get("size") or 0), version=str(version))


def open_store(url: str, *, suffix: str = "") -> Store:
    """A folder for a plain path, fsspec for anything with a protocol."""
    return UrlStore(url, suffix=suffix) if "://" in url else FolderStore(Path(url), suffix=suffix)
