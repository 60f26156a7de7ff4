from __future__ import annotations

import random
from pathlib import Path

from everstep.trainer.data.cache import ShardCache
from everstep.trainer.data.shard import Shard
from everstep.trainer.data.spill import SpillFolder


def _shard(number: int, size: int = 100) -> Shard:
    return Shard(name=f"shard-{number}", size=size)


def _content(number: int, size: int = 100) -> bytes:
    return bytes([number]) * size


def _filled(cache: ShardCache, count: int) -> ShardCache:
    for number in range(count):
        cache.put(_shard(number), _content(number))
    return cache


def test_the_least_recently_used_shard_leaves_first() -> None:
    cache = _filled(ShardCache(max_bytes=300), 3)
    cache.get(_shard(0))
    cache.put(_shard(3), _content(3))
    assert [cache.holds(_shard(number)) for number in range(4)] == [True, False, True, True]
    assert cache.num_bytes == 300


def test_the_newest_shard_is_held_whatever_its_size() -> None:
    cache = _filled(ShardCache(max_bytes=300), 3)
    cache.put(_shard(9, 1000), _content(9, 1000))
    assert cache.get(_shard(9, 1000)) == _content(9, 1000)
    assert cache.num_bytes == 1000
    cache.put(_shard(1), _content(1))
    assert cache.num_bytes == 100


def test_what_leaves_memory_comes_back_from_disk(tmp_path: Path) -> None:
    cache = _filled(ShardCache(max_bytes=200, spill=SpillFolder(tmp_path, max_bytes=10_000)), 4)
    assert cache.get(_shard(0)) == _content(0)
    assert cache.counts.disk_hits == 1
    assert cache.get(_shard(0)) == _content(0)
    assert cache.counts.memory_hits == 1
    assert all(cache.holds(_shard(number)) for number in range(4))


def test_a_corrupt_spill_is_a_miss_never_wrong_bytes(tmp_path: Path) -> None:
    cache = _filled(ShardCache(max_bytes=100, spill=SpillFolder(tmp_path, max_bytes=10_000)), 2)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert cache.get(_shard(0)) is None
    assert cache.counts.misses == 1


def test_both_bounds_hold_under_any_traffic(tmp_path: Path) -> None:
    for seed in range(5):
        rng = random.Random(seed)  # noqa: S311 - seeded traffic, not secrets
        folder = tmp_path / str(seed)
        spill = SpillFolder(folder, max_bytes=1500)
        cache = ShardCache(max_bytes=1000, spill=spill)
        sizes = {number: rng.randrange(1, 400) for number in range(30)}
        for _ in range(300):
            number = rng.choice(list(sizes))
            shard = _shard(number, sizes[number])
            content = cache.get(shard)
            assert content in {None, _content(number, sizes[number])}
            if content is None:
                cache.put(shard, _content(number, sizes[number]))
            assert cache.num_bytes <= 1000
            assert sum(path.stat().st_size for path in folder.iterdir()) == spill.num_bytes <= 1500
