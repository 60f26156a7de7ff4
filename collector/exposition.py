"""`/metrics`: the merged samples as text at the moment of the scrape, written by prometheus_client and remembered.

The library words each series once; from then on only its value is written anew, for a scrape of a thousand series
would otherwise cost more than all sampling. What is not sampled any more is forgotten, so that the series of an ended
or older attempt are gone as soon as its worker is.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from everstep.collector.samples import Labels, Sample, SampleSource
from everstep.core.metrics import METRIC_BY_NAME, MetricKind

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
"""What an Accept header says to get OpenMetrics."""

_SUFFIX = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}
_END = "# EOF\n"
_Encoder = Callable[[Collector], bytes]
_Key = tuple[str, str, Labels]


class _OneFamily(Collector):
    """prometheus_client's collector protocol over one sample."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Family]:
        sample = self._sample
        metric = METRIC_BY_NAME[sample.metric]
        family = Family(metric.name.removesuffix(_SUFFIX.get(metric.kind, "")), metric.help, metric.kind.value)
        family.add_sample(sample.metric + sample.suffix, dict(sample.labels), sample.value)
        yield family


def _number(value: float) -> str:
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text


class _Line:
    """One series: its line as last written, and what of it stays."""

    __slots__ = ("front", "header", "text", "value")

    def __init__(self, header: str, front: str) -> None:
        self.header = header
        self.front = front
        self.value = math.nan
        self.text = ""

    def write(self, value: float) -> str:
        if value != self.value:
            self.value = value
            self.text = f"{self.front}{_number(value)}\n"
        return self.text


class _Format:
    """What has been written so far in one of the formats."""

    def __init__(self, encoder: _Encoder) -> None:
        self._encoder = encoder
        self._lines: dict[_Key, _Line] = {}

    def write(self, samples: Iterable[Sample]) -> str:
        before, self._lines = self._lines, {}
        families: dict[str, list[str]] = {}
        for sample in samples:
            key = (sample.metric, sample.suffix, sample.labels)
            line = self._lines[key] = before.get(key) or self._word(sample)
            family = families.get(sample.metric)
            if family is None:
                family = families[sample.metric] = [line.header]
            family.append(line.write(sample.value))
        return "".join(["".join(family) for family in families.values()])

    def _word(self, sample: Sample) -> _Line:
        text = self._encoder(_OneFamily(sample)).decode().removesuffix(_END)
        header, _, line = text.removesuffix("\n").rpartition("\n")
        return _Line(sys.intern(f"{header}\n"), f"{line.rpartition(' ')[0]} ")


class Exposition:
    """For one thread; `render` reads every source once."""

    def __init__(self, sources: Iterable[SampleSource]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._sources = tuple(sources)
        self._formats: dict[str, _Format] = {}

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition in the format that the Accept header asks for, with its content type."""
        encoder, content_type = choose_encoder(accept)
        words = self._formats.get(content_type)
        if words is None:
            self._formats.clear()  # there is one scraper as a rule; another one may ask for something else
            words = self._formats[content_type] = _Format(encoder)
        text = words.write(sample for source in self._sources for sample in source.collect())
        return (text + _END if "openmetrics" in content_type else text).encode(), content_type
