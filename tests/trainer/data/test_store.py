from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from everstep.core.errors import ConfigError
from everstep.trainer.data.shard import Catalog, Shard
from everstep.trainer.data.store import FolderStore, MemoryStore, Store, UrlStore, open_store

TEXTS = {"a.bin": b"aaaa", "sub/b.bin": b"bb"}


def _folder(root: Path) -> Store:
    for name, text in {**TEXTS, "c.txt": b"c", ".hidden.bin": b"h"}.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    return open_store(str(root), suffix=".bin")


def _url(root: Path) -> Store:
    files = fsspec.filesystem("memory")
    for name, text in {**TEXTS, "c.txt": b"c"}.items():
        files.pipe_file(f"{root}/{name}", text)
    return open_store(f"memory:/{root}", suffix=".bin")


def _memory(root: Path) -> Store:
    return MemoryStore(TEXTS)


@pytest.fixture(params=[_folder, _url, _memory])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    make: Callable[[Path], Store] = request.param
    yield make(tmp_path)
    files = fsspec.filesystem("memory")
    if files.exists(str(tmp_path)):
        files.rm(str(tmp_path), recursive=True)


def test_every_store_lists_and_reads_its_shards(store: Store) -> None:
    shards = {shard.name: shard for shard in store.shards()}
    assert {name: shard.size for name, shard in shards.items()} == {"a.bin": 4, "sub/b.bin": 2}
    assert {name: store.read(shard) for name, shard in shards.items()} == TEXTS


def test_every_store_says_when_a_shard_is_gone(store: Store) -> None:
    with pytest.raises(FileNotFoundError):
        store.read(Shard(name="absent.bin", size=1))


def test_a_rewritten_file_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (before,) = FolderStore(tmp_path).shards()
    (tmp_path / "a").unlink()
    (tmp_path / "a").write_bytes(b"2")
    (after,) = FolderStore(tmp_path).shards()
    assert before.version != after.version


def test_places_that_cannot_be_listed_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder .*absent; correct data\.shards\.url"):
        open_store(str(tmp_path / "absent")).shards()
    with pytest.raises(ConfigError, match=r"cannot open nosuch://x .*install the package of its protocol"):
        UrlStore("nosuch://x")
    with pytest.raises(ConfigError, match="there is no shard at memory://absent"):
        Catalog.of(open_store("memory://absent").shards(), where="memory://absent")


def test_an_empty_shard_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="shard b at x is empty"):
        Catalog.of([Shard(name="a", size=5), Shard(name="b", size=0)], where="x")


def test_a_catalog_is_sorted_and_knows_its_content_by_names_and_sizes() -> None:
    shards = [Shard(name="b", size=1, version="1"), Shard(name="a", size=2)]
    catalog = Catalog.of(shards, where="x")
    assert [shard.name for shard in catalog.shards] == ["a", "b"]
    assert catalog.fingerprint == Catalog.of(reversed(shards), where="x").fingerprint
    assert catalog.fingerprint != Catalog.of([*shards, Shard(name="c", size=1)], where="x").fingerprint
