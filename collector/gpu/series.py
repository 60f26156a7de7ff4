"""The series of one GPU, each with its labels made once; an unchanged value costs no new object."""

from __future__ import annotations

from everstep.collector.samples import Labels, Sample

Label = tuple[tuple[str, str], ...]


class Series:
    __slots__ = ("_labels", "_last", "_metric")

    def __init__(self, metric: str, labels: Labels) -> None:
        self._metric = metric
        self._labels = labels
        self._last = Sample(metric=metric, value=float("nan"), labels=labels)

    def sample(self, value: float) -> Sample:
        if self._last.value != value:
            self._last = Sample(metric=self._metric, value=value, labels=self._labels)
        return self._last


class GpuSeries:
    """Series by metric and further labels; `index` is NVML's, None where it is not known, `uuid` never changes."""

    def __init__(self, index: int | None, uuid: str) -> None:
        self.index = index
        self._own: Labels = (("gpu", "" if index is None else str(index)), ("uuid", uuid))
        self._known: dict[tuple[str, Label], Series] = {}

    def of(self, metric: str, label: Label = ()) -> Series:
        key = (metric, label)
        series = self._known.get(key)
        if series is None:
            series = self._known[key] = Series(metric, (*self._own, *label))
        return series
