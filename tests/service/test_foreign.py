"""Other exporters' series become ours, once each, in our unit; what the exporters get wrong is refused and counted."""

from __future__ import annotations

import pytest

from everstep.core.metrics import METRIC_BY_NAME
from everstep.core.metrics.foreign import FOREIGN, Foreign
from everstep.core.remote_write import STALE_NAN, Series, decompress, encode_series, series
from everstep.service.foreign import FROZEN_SAMPLES, SOURCE_SILENT_S
from everstep.service.window_store import WindowStore

NOW = 1_796_103_398.0
GPU = {"cluster": "c1", "Hostname": "n1", "UUID": "GPU-0", "gpu": "0", "instance": "10.0.0.1:9400", "pod": "p"}
OURS = {"cluster": "c1", "node": "n1", "uuid": "GPU-0", "gpu": "0"}


def no_attempt(job: str) -> int:
    return 0


@pytest.fixture
def store() -> WindowStore:
    return WindowStore(window_s=600, max_series=1000, current_attempt=no_attempt)


def push(store: WindowStore, *batch: Series, at: float = NOW) -> int:
    return store.apply(decompress(encode_series(batch), max_bytes=10**7), arrived=at)


def dcgm(name: str, value: float, at: float = NOW, **changed: str) -> Series:
    return series(f"DCGM_FI_DEV_{name}", {**GPU, **changed}, [(at, value)])


def newest(store: WindowStore, name: str, **labels: str) -> list[float]:
    return [value for _, value in store.latest(name, **labels).values()]


@pytest.mark.parametrize("row", FOREIGN, ids=lambda row: f"{row.theirs}-{row.ours}")
def test_every_row_of_the_table_arrives_under_our_name_unit_and_labels(store: WindowStore, row: Foreign) -> None:
    metric = METRIC_BY_NAME[row.ours]
    back = {ours: theirs for theirs, ours in row.renamed}
    own = {name: "x" for name in metric.label_names if name not in dict(row.labels)}
    theirs = {"cluster": "c1", "instance": "n1:9100", **{back.get(name, name): value for name, value in own.items()}}
    value = 50.0 if row.ours == "everstep_gpu_temperature_celsius" else 1.0 if "DEV_GPU_UTIL" in row.theirs else 0.5
    value = 8.0 if row.theirs.startswith(("slurm", "DCGM_FI_DEV_FB", "DCGM_FI_DEV_POWER")) else value
    value = 65536.0 if row.theirs.startswith("node_memory_MemTotal") or row.plus else value
    value = 1e9 if row.theirs.endswith(("MemTotal_bytes", "rate_bytes_per_second")) else value
    value = 1.0 if "ROW_REMAP_FAILURE" in row.theirs else value
    value = 400_000.0 if "milli_watts" in row.theirs else 1.0 if "percent" in row.theirs else value
    value = 1500.0 if "SM_CLOCK" in row.theirs else value
    batch = [series(row.theirs, theirs, [(NOW, value)])]
    expected = value * row.factor
    for other in (row.plus, row.divided_by):
        if other:
            batch.append(series(other, theirs, [(NOW, 2 * value)]))
            expected = 3 * value * row.factor if row.plus else 0.5
    push(store, *batch)
    assert store.rejected() == {}
    ((labels, (_, found)),) = store.latest(row.ours, **dict(row.labels)).items()
    assert found == pytest.approx(expected)
    assert dict(labels) == {"__name__": row.ours, "cluster": "c1", "node": "n1", **own, **dict(row.labels)}


@pytest.mark.parametrize(
    "spelling",
    [{"UUID": "GPU-0", "Hostname": "n1"}, {"uuid": "GPU-0", "hostname": "n1"}, {"gpu_uuid": "GPU-0", "node": "n1"}],
)
def test_every_spelling_of_the_labels_is_known(store: WindowStore, spelling: dict[str, str]) -> None:
    labels = {"cluster": "c1", "gpu": "0", "instance": "10.0.0.1:9400", **spelling}
    push(store, series("DCGM_FI_DEV_POWER_USAGE", labels, [(NOW, 400.0)]))
    ((found, _),) = store.latest("everstep_gpu_power_watts").items()
    assert dict(found) == {"__name__": "everstep_gpu_power_watts", **OURS}


def test_a_gpu_that_two_pods_report_is_one(store: WindowStore) -> None:
    push(store, dcgm("POWER_USAGE", 400.0), dcgm("POWER_USAGE", 400.0, pod=""))
    push(store, dcgm("POWER_USAGE", 401.0, NOW + 1), dcgm("POWER_USAGE", 390.0, NOW + 1.5, pod=""), at=NOW + 2)
    assert newest(store, "everstep_gpu_power_watts") == [401.0]
    assert store.rejected() == {("everstep_gpu_power_watts", "duplicate"): 2}


def test_another_source_takes_over_when_the_first_is_silent(store: WindowStore) -> None:
    push(store, dcgm("POWER_USAGE", 400.0), dcgm("POWER_USAGE", 400.0, pod=""))
    later = NOW + SOURCE_SILENT_S + 1
    assert push(store, dcgm("POWER_USAGE", 300.0, later, pod=""), at=later) == 1
    assert newest(store, "everstep_gpu_power_watts") == [300.0]


def test_the_native_agent_wins(store: WindowStore) -> None:
    push(store, dcgm("POWER_USAGE", 400.0))
    native = series("everstep_gpu_power_watts", {**OURS, "node": "node-1"}, [(NOW + 1, 410.0)])
    push(store, native, dcgm("POWER_USAGE", 401.0, NOW + 1), at=NOW + 1)
    assert newest(store, "everstep_gpu_power_watts") == [410.0]
    assert store.rejected() == {("everstep_gpu_power_watts", "duplicate"): 1}


def test_bogus_values_are_out_of_range(store: WindowStore) -> None:
    push(store, dcgm("GPU_UTIL", 4294967295.0), dcgm("GPU_TEMP", 82505.0), dcgm("FB_USED", 9.22e18))
    assert store.num_accepted == 0
    assert store.rejected() == {
        ("everstep_gpu_utilization_ratio", "range"): 1,
        ("everstep_gpu_temperature_celsius", "range"): 1,
        ("everstep_gpu_memory_used_bytes", "range"): 1,
    }


def test_the_last_xid_counts_when_it_changes_and_never_by_its_level(store: WindowStore) -> None:
    for second, code in enumerate((79, 79, 31, 31, 0, 31, 48, 0)):
        push(store, dcgm("XID_ERRORS", float(code), NOW + second), at=NOW + second)
    counts = {dict(key)["xid"]: value for key, (_, value) in store.latest("everstep_gpu_xid_errors_total").items()}
    assert counts == {"31": 2.0, "48": 1.0}
    ((_, values),) = store.samples("everstep_gpu_xid_errors_total", xid="31")
    assert values.tolist() == [0.0, 1.0, 2.0]


def test_a_counter_of_codes_silences_the_hint(store: WindowStore) -> None:
    for second, code in enumerate((0, 79, 0)):
        push(store, dcgm("XID_ERRORS", float(code), NOW + second), at=NOW + second)
    gpud = {"cluster": "c1", "node": "n1", "uuid": "GPU-0", "xid": "79", "gpud_component": "xid"}
    push(store, series("accelerator_nvidia_xid_errors_total", gpud, [(NOW + 3, 4.0)]), at=NOW + 3)
    push(store, dcgm("XID_ERRORS", 79.0, NOW + 4), at=NOW + 4)
    assert store.rejected() == {("everstep_gpu_xid_errors_total", "duplicate"): 1}
    assert 4.0 in newest(store, "everstep_gpu_xid_errors_total", xid="79")


def test_frozen_temperature_and_power_under_load_are_not_believed(store: WindowStore) -> None:
    def second(number: int, watts: float) -> int:
        at = NOW + number
        gpu = (dcgm("GPU_UTIL", 99.0, at), dcgm("GPU_TEMP", 61.0, at), dcgm("POWER_USAGE", watts, at))
        return push(store, *gpu, at=at)

    assert [second(number, 400.0) for number in range(FROZEN_SAMPLES - 1)] == [3] * (FROZEN_SAMPLES - 1)
    for number in range(FROZEN_SAMPLES - 1, FROZEN_SAMPLES + 3):
        second(number, 400.0)
    assert newest(store, "everstep_gpu_power_watts") == []
    assert store.rejected()["everstep_gpu_power_watts", "stale"] == 4
    second(20, 402.0)
    assert newest(store, "everstep_gpu_power_watts") == [402.0]


def test_a_resting_gpu_may_stand_still(store: WindowStore) -> None:
    for number in range(3 * FROZEN_SAMPLES):
        at = NOW + number
        push(store, dcgm("GPU_UTIL", 0.0, at), dcgm("GPU_TEMP", 31.0, at), dcgm("POWER_USAGE", 70.0, at), at=at)
    assert newest(store, "everstep_gpu_power_watts") == [70.0]


def test_an_end_of_theirs_is_an_end_of_ours(store: WindowStore) -> None:
    push(store, dcgm("POWER_USAGE", 400.0))
    push(store, dcgm("POWER_USAGE", STALE_NAN, NOW + 1), at=NOW + 1)
    assert newest(store, "everstep_gpu_power_watts") == []


def test_their_samples_do_not_speak_for_our_agent(store: WindowStore) -> None:
    push(store, series("node_memory_MemAvailable_bytes", {"instance": "n1:9100"}, [(NOW, 1e9)]))
    assert store.last_push() == {}


def test_what_is_not_in_the_table_takes_no_room(store: WindowStore) -> None:
    push(store, *(series("node_cpu_seconds_total", {"cpu": str(one)}, [(NOW, 1.0)]) for one in range(5)))
    for device in ("lo", "ib0", "ib1.8001"):
        push(store, series("node_network_receive_bytes_total", {"device": device, "instance": "n1"}, [(NOW, 1.0)]))
    assert store.num_series == 0
    assert store.rejected() == {("unlisted", "unknown"): 8}


def test_mapped_series_count_against_the_limit() -> None:
    store = WindowStore(window_s=600, max_series=2, current_attempt=no_attempt)
    push(store, *(dcgm("POWER_USAGE", 400.0, UUID=f"GPU-{one}") for one in range(5)))
    assert store.num_series == 2
    assert store.rejected()["everstep_gpu_power_watts", "limit"] == 3
