"""What a Prometheus holds becomes a judgement of each of the 27, with a mend for what is not there."""

from __future__ import annotations

import pytest

from everstep.core.metrics import CORE_METRICS, METRIC_BY_NAME
from everstep.core.metrics.coverage import (
    HOW,
    HOW_ONE,
    Covered,
    Presence,
    Sighting,
    asked_for,
    coverage,
    exporter_of,
    series_of,
)
from everstep.core.metrics.foreign import FOREIGN, HINTS


def seen(*names: str, job: str = "x") -> dict[str, Covered]:
    sightings = [Sighting(name=name, job=job, num_series=2, newest_age_s=1.0) for name in names]
    return {covered.metric.name: covered for covered in coverage(sightings)}


def test_nothing_seen_is_27_times_missing_each_with_a_mend() -> None:
    found = seen()
    assert len(found) == 27
    assert all(one.presence is Presence.MISSING and one.mends and not one.there for one in found.values())


def test_all_native_is_all_there() -> None:
    found = seen(*(series_of(metric) for metric in CORE_METRICS), job="everstep-agent")
    assert {one.presence for one in found.values()} == {Presence.NATIVE}
    assert all(one.there and not one.mends for one in found.values())


def test_a_histogram_is_proved_by_its_count() -> None:
    assert series_of(METRIC_BY_NAME["everstep_net_latency_seconds"]) == "everstep_net_latency_seconds_count"


def test_an_exporters_series_stands_in() -> None:
    found = seen("DCGM_FI_DEV_GPU_TEMP", "node_memory_MemAvailable_bytes")
    temperature = found["everstep_gpu_temperature_celsius"]
    assert (temperature.presence, temperature.sightings[0].exporter) == (Presence.MAPPED, "dcgm-exporter")
    assert found["everstep_host_memory_available_bytes"].sightings[0].exporter == "node_exporter"


def test_ours_is_named_before_theirs() -> None:
    found = seen("DCGM_FI_DEV_POWER_USAGE", "everstep_gpu_power_watts")["everstep_gpu_power_watts"]
    assert found.presence is Presence.NATIVE
    assert [sighting.name for sighting in found.sightings] == ["everstep_gpu_power_watts"]


@pytest.mark.parametrize(
    ("theirs", "ours", "why"),
    [
        ("DCGM_FI_DEV_XID_ERRORS", "everstep_gpu_xid_errors_total", "hint only"),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", "everstep_gpu_throttled_seconds_total", "calibrate"),
        ("node_disk_write_time_seconds_total", "everstep_storage_latency_seconds", "no tail"),
        ("slurm_gpus_idle", "everstep_cluster_gpus", "no fragmented"),
    ],
)
def test_what_loses_information_is_partial_and_not_there(theirs: str, ours: str, why: str) -> None:
    found = seen(theirs)[ours]
    assert found.presence is Presence.PARTIAL
    assert not found.there
    assert why in found.note
    assert found.mends


def test_a_counter_that_dcgm_leaves_out_is_named_where_dcgm_runs() -> None:
    without = seen()["everstep_gpu_ecc_errors_total"].mends
    beside = seen("DCGM_FI_DEV_GPU_TEMP")["everstep_gpu_ecc_errors_total"].mends
    assert "install dcgm-exporter and enable DCGM_FI_DEV_ECC_SBE_VOL_TOTAL" in without[1]
    assert beside[1].startswith("enable DCGM_FI_DEV_ECC_SBE_VOL_TOTAL in the counters file of dcgm-exporter")
    assert "commented out by default" in beside[1]


def test_node_exporter_is_told_its_collectors() -> None:
    found = seen()
    assert "run node_exporter with --collector.infiniband" in found["everstep_net_port_errors_total"].mends
    assert any("PSI" in mend for mend in found["everstep_pressure_stalled_seconds_total"].mends)
    assert any("EverstepCallback" in mend for mend in found["everstep_train_loss"].mends)


def test_each_of_the_27_has_a_way_of_ours() -> None:
    assert {metric.source for metric in CORE_METRICS if metric.name not in HOW_ONE} <= set(HOW)
    assert set(HOW_ONE) <= {metric.name for metric in CORE_METRICS}


def test_everything_that_is_judged_is_asked_for() -> None:
    ours = {metric.name for metric in CORE_METRICS}
    asked = set(asked_for())
    assert {row.theirs for row in FOREIGN if row.ours in ours} <= asked
    assert {hint.theirs for hint in HINTS if hint.ours in ours} <= asked
    assert len(asked_for()) == len(asked)
    assert all(exporter_of(name) != "everstep" or name.startswith("everstep_") for name in asked)
