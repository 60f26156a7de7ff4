"""What a run reads: the shards of a store, or a small text as the only shard of a store in memory."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.errors import ConfigError
from everstep.trainer.config import DataConfig
from everstep.trainer.data.corpus import Corpus, read_corpus
from everstep.trainer.data.shard import Catalog
from everstep.trainer.data.store import MemoryStore, Store, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`resident`: reading it takes no time and cannot fail."""

    catalog: Catalog
    store: Store
    resident: bool = False

    @classmethod
    def of(cls, corpus: Corpus) -> Source:
        store = MemoryStore({"text": corpus.text.tobytes()})
        return cls(
            catalog=Catalog(shards=tuple(store.shards()), fingerprint=corpus.fingerprint), store=store, resident=True
        )


def open_source(config: DataConfig) -> Source:
    """Raises `ConfigError` when there is nothing to read, or the cache cannot hold what is mixed at once."""
    url = config.shards.url
    if url is None:
        return Source.of(read_corpus(config))
    store = open_store(url, suffix=config.shards.suffix)
    source = Source(catalog=Catalog.of(store.shards(), where=url), store=store)
    _check_room(source.catalog, config)
    return source


def _check_room(catalog: Catalog, config: DataConfig) -> None:
    sizes = sorted(catalog.sizes)[-config.shards.mix :]
    room = (config.cache.memory_mb + (config.cache.disk_mb if config.cache.directory else 0)) * 2**20
    if len(sizes) > 1 and sum(sizes) > room:
        raise ConfigError(
            f"the cache holds {room / 2**20:.0f} MiB and data.shards.mix = {config.shards.mix} shards need "
            f"{sum(sizes) / 2**20:.0f} MiB",
            mend="raise data.cache.memory_mb, set data.cache.directory, or lower data.shards.mix",
        )
