from __future__ import annotations

from pathlib import Path

import pytest

from everstep.core.errors import ConfigError
from everstep.trainer.config import CacheConfig, DataConfig, ShardsConfig
from everstep.trainer.data import open_source, read_corpus


def test_a_small_text_is_one_shard_with_the_fingerprint_of_its_content() -> None:
    config = DataConfig(max_bytes=10_000)
    source = open_source(config)
    (shard,) = source.catalog.shards
    assert source.store.read(shard) == read_corpus(config).text.tobytes()
    assert source.catalog.fingerprint == read_corpus(config).fingerprint


def test_a_folder_of_shards_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 50)
    assert open_source(DataConfig(shards=ShardsConfig(url=str(tmp_path)))).catalog.sizes == (50,)


def test_a_cache_that_cannot_hold_what_is_mixed_is_refused(tmp_path: Path) -> None:
    for number in range(3):
        with (tmp_path / str(number)).open("wb") as file:
            file.truncate(2**20)
    cache = CacheConfig(memory_mb=1)
    with pytest.raises(ConfigError, match=r"the cache holds 1 MiB and data\.shards\.mix = 2 shards need 2 MiB"):
        open_source(DataConfig(shards=ShardsConfig(url=str(tmp_path), mix=2), cache=cache))
    open_source(DataConfig(shards=ShardsConfig(url=str(tmp_path), mix=1), cache=cache))
    spilling = CacheConfig(memory_mb=1, directory=tmp_path / ".spill", disk_mb=1)
    open_source(DataConfig(shards=ShardsConfig(url=str(tmp_path), mix=2), cache=spilling))


def test_text_and_shards_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.directory and data\.shards\.url are both set"):
        DataConfig(directory=tmp_path, shards=ShardsConfig(url="s3://x"))
