from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from everstep.collector.exposition import registry_of, render
from everstep.collector.nvml import Gpus
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
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_both_formats_parse_back(accept: str, parse: object) -> None:
    body, content_type = render(registry_of([SOURCE]), accept)
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
    body, _ = render(registry_of([SOURCE]), OPENMETRICS)
    assert b"_created" not in body


def test_a_node_without_nvml_expects_no_gpu() -> None:
    body, _ = render(registry_of([Gpus(lambda: 0)]), "")
    assert b"everstep_gpus_expected 0.0" in body
