"""`/metrics`: one custom collector that turns the merged samples into families at the moment of the scrape.

A registry of our own holds it. Nothing is kept between scrapes, so the series of an ended or older attempt are gone as
soon as its worker is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family

from everstep.collector.samples import SampleSource
from everstep.core.metrics import METRIC_BY_NAME, MetricKind

_SUFFIX = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}


class SampleCollector:
    """prometheus_client's collector protocol over our sources."""

    def __init__(self, sources: Iterable[SampleSource]) -> None:
        self._sources = tuple(sources)

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for source in self._sources:
            for sample in source.collect():
                family = families.get(sample.metric)
                if family is None:
                    family = families[sample.metric] = _family(sample.metric)
                family.add_sample(sample.metric + sample.suffix, dict(sample.labels), sample.value)
        yield from families.values()


def _family(name: str) -> Family:
    metric = METRIC_BY_NAME[name]
    return Family(name.removesuffix(_SUFFIX.get(metric.kind, "")), metric.help, metric.kind.value)


def registry_of(sources: Iterable[SampleSource]) -> CollectorRegistry:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SampleCollector(sources))
    return registry


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The exposition in the format that the Accept header asks for, with its content type."""
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type
