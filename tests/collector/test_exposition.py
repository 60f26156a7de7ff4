from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from everstep.collector.exposition import OPENMETRICS, Exposition
from everstep.collector.samples import Sample


class Fixed:
    def __init__(self, *samples: Sample) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Sample]:
        return self._samples


SOURCE = Fixed(
    Sample(metric="everstep_train_loss", labels=(("train_job", "demo"),), value=2.5),
    Sample(metric="everstep_train_steps_total", labels=(("train_job", "demo"), ("rank", "0")), value=7.0),
    Sample(metric="everstep_train_step_duration_seconds", suffix="_bucket", labels=(("le", "+Inf"),), value=3.0),
    Sample(metric="everstep_train_step_duration_seconds", suffix="_sum", value=1.5),
    Sample(metric="everstep_train_step_duration_seconds", suffix="_count", value=3.0),
    Sample(metric="everstep_train_rank_info", labels=(("rank", "0"), ("node", "n")), value=1.0),
)


@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_both_formats_parse_back(accept: str, parse: object) -> None:
    body, content_type = Exposition([SOURCE]).render(accept)
    samples = {one.name: one.value for family in parse(body.decode()) for one in family.samples}  # type: ignore[operator]
    assert samples == {
        "everstep_train_loss": 2.5,
        "everstep_train_steps_total": 7.0,
        "everstep_train_step_duration_seconds_bucket": 3.0,
        "everstep_train_step_duration_seconds_sum": 1.5,
        "everstep_train_step_duration_seconds_count": 3.0,
        "everstep_train_rank_info": 1.0,
    }
    assert content_type.startswith(accept.partition(";")[0] or "text/plain")


def test_no_created_series() -> None:
    body, _ = Exposition([SOURCE]).render(OPENMETRICS)
    assert b"_created" not in body


def test_openmetrics_says_where_it_ends() -> None:
    body, content_type = Exposition([SOURCE]).render(OPENMETRICS)
    assert body.endswith(b"# EOF\n")
    assert content_type.startswith("application/openmetrics-text")


class Changing:
    """Gives out one list after the other."""

    def __init__(self, *rounds: list[Sample]) -> None:
        self._rounds = iter(rounds)

    def collect(self) -> Iterable[Sample]:
        return next(self._rounds)


def loss(value: float, job: str = "demo") -> Sample:
    return Sample(metric="everstep_train_loss", labels=(("train_job", job),), value=value)


ODD = 'a "quoted"\nback\\slash \u00e9 # 7'
VALUES = [0.0, 1.0, -2.5, 1e6, 123456789.0, 1.5e-9, 3e22, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("accept", ["", OPENMETRICS, f"{OPENMETRICS}; escaping=allow-utf-8"])
def test_a_known_series_is_written_as_a_new_one(accept: str) -> None:
    rounds = [[loss(value), loss(value, ODD), *SOURCE.collect()] for value in VALUES]
    again = Exposition([Changing(*rounds)])
    for samples in rounds:
        assert again.render(accept) == Exposition([Fixed(*samples)]).render(accept)


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_values_and_labels_survive(accept: str) -> None:
    parse = parse_openmetrics if accept else parse_text
    exposition = Exposition([Changing(*[[loss(value, ODD)] for value in VALUES])])
    for value in VALUES:
        ((sample,),) = [family.samples for family in parse(exposition.render(accept)[0].decode())]
        assert sample.labels == {"train_job": ODD}
        assert sample.value == pytest.approx(value, nan_ok=True)


def test_a_series_that_is_not_sampled_any_more_is_gone_and_comes_back() -> None:
    exposition = Exposition([Changing([loss(1.0), loss(2.0, "b")], [loss(2.0, "b")], [loss(3.0), loss(2.0, "b")])])
    texts = [exposition.render("")[0].decode() for _ in range(3)]
    assert ['train_job="demo"' in text for text in texts] == [True, False, True]
    assert all(text.count("# TYPE") == 1 for text in texts)


def test_two_scrapers_each_get_their_format() -> None:
    exposition = Exposition([SOURCE])
    first = [exposition.render(accept) for accept in ("", OPENMETRICS)]
    assert [exposition.render(accept) for accept in ("", OPENMETRICS)] == first
