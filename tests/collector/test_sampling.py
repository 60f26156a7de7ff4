"""The merged stream: each reading gated once, pushed once and under its own time; what is stale is gone and told."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from everstep.collector.gate import Rejections
from everstep.collector.gpu.group import Gpus
from everstep.collector.samples import Dated, Sample
from everstep.collector.sampling import Sampling, source_health
from everstep.collector.watched import WatchedSource
from everstep.core.clock import ManualClock
from everstep.core.settings import AgentSettings

TASKS = "everstep_host_blocked_tasks"
REJECTED = "everstep_agent_samples_rejected_total"


class Fixed:
    def __init__(self, *values: float) -> None:
        self.values = values
        self.error: Exception | None = None

    def collect(self) -> Iterable[Sample]:
        if self.error is not None:
            raise self.error
        return [Sample(metric=TASKS, value=value) for value in self.values]


class Node:
    """A node without GPUs and two sources, read by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock(50.0)
        self.first, self.second = Fixed(3.0), Fixed()
        self.watched = [
            WatchedSource(name, source, interval_s=1, deadline_s=2, clock=self.clock)
            for name, source in (("host", self.first), ("fans", self.second))
        ]
        rejections = Rejections()
        gpus = Gpus(AgentSettings(gpus_expected=0), self.clock, count_file=Path("/nowhere/gpus"))
        self.sampling = Sampling(self.watched, gpus, rejections)

    def read(self) -> None:
        """One reading that ages, unlike that of `everstep agent --once`."""
        self.sampling.read_once()
        for source in self.watched:
            source._is_single = False

    def scrape(self, metric: str = TASKS) -> list[float]:
        return [one.value for one in self.sampling.collect() if one.metric == metric]

    def push(self) -> list[tuple[float, float | None]]:
        """Values with the time at which they were read, None for those that have been pushed."""
        drained = list(self.sampling.drain())
        dated = [(sample.value, one.at) for one in drained if isinstance(one, Dated) for sample in one.samples]
        plain = [(one.value, -1.0) for one in drained if isinstance(one, Sample) and one.metric == TASKS]
        return [*dated, *plain]


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_reading_is_pushed_once_under_its_own_time(node: Node) -> None:
    node.read()
    read_at = node.watched[0].read_at
    assert node.push() == [(3.0, read_at)]
    assert node.push() == [(3.0, None)], "the series lives and has nothing new"
    node.clock.advance(1.0)
    node.read()
    assert node.push() == [(3.0, node.watched[0].read_at)]


def test_a_scrape_takes_nothing_from_the_push(node: Node) -> None:
    node.read()
    assert node.scrape() == node.scrape() == [3.0]
    assert node.push() == [(3.0, node.watched[0].read_at)]


def test_a_refused_sample_counts_once_however_often_it_is_asked_for(node: Node) -> None:
    node.first.values = (-1.0,)
    node.read()
    for _ in range(3):
        assert node.scrape() == []
        assert node.push() == []
    assert node.scrape(REJECTED) == [1.0]


def test_what_two_sources_tell_is_told_once(node: Node) -> None:
    node.second.values = (7.0,)
    node.read()
    assert node.scrape() == [7.0]
    assert node.push() == [(7.0, -1.0)], "stamped when it is pushed"
    assert node.scrape(REJECTED) == [1.0]


def test_what_is_stale_is_gone_and_its_source_is_down(node: Node) -> None:
    node.read()
    node.clock.advance(5.0)
    assert node.scrape() == []
    assert node.push() == []
    assert node.scrape("everstep_agent_source_up") == [0.0, 0.0]


def test_one_failing_source_leaves_the_other_alone(node: Node) -> None:
    node.second.error = OSError("gone")
    node.read()
    assert node.scrape() == [3.0]
    up = {one.labels: one.value for one in source_health(node.watched) if one.metric == "everstep_agent_source_up"}
    assert up == {(("source", "host"),): 1.0, (("source", "fans"),): 0.0}
    failures = {
        tuple(value for _, value in one.labels): one.value
        for one in source_health(node.watched)
        if one.metric == "everstep_agent_source_failures_total"
    }
    assert failures["fans", "error"] == 1
    assert failures["host", "error"] == failures["host", "timeout"] == failures["fans", "timeout"] == 0


def test_several_devices_of_a_kind_are_up_together(node: Node) -> None:
    broken = Fixed()
    broken.error = OSError("gone")
    gpus = [
        WatchedSource("gpu", source, interval_s=1, deadline_s=2, clock=node.clock) for source in (Fixed(1.0), broken)
    ]
    for source in gpus:
        source.sample_once()
    samples = list(source_health(gpus))
    assert [one.value for one in samples if one.metric == "everstep_agent_source_up"] == [0.0]
    assert [one.value for one in samples if one.metric == "everstep_agent_source_failures_total"] == [0.0, 1.0]


def test_gpus_expected_are_told_without_any_driver(node: Node) -> None:
    assert node.scrape("everstep_gpus_expected") == [0.0]
    assert len(node.scrape("everstep_agent_scrape_duration_seconds")) == 1
