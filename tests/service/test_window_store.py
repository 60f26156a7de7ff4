from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from everstep.core.errors import WireError
from everstep.core.remote_write import STALE_NAN, Series, decompress, encode_series, series
from everstep.service.window_store import WindowStore

NOW = 1_000_000.0
RANK_1 = {"node": "node-1", "train_job": "demo", "rank": "1"}


class Current:
    attempt = 0

    def __call__(self, job: str) -> int:
        return self.attempt


@pytest.fixture
def current() -> Current:
    return Current()


@pytest.fixture
def store(current: Current) -> WindowStore:
    return WindowStore(window_s=600, max_series=20, current_attempt=current)


def push(store: WindowStore, *batch: Series, at: float = NOW) -> int:
    return store.apply(decompress(encode_series(batch), max_bytes=10**7), arrived=at)


def temperature(*samples: tuple[float, float], node: str = "node-0", gpu: str = "0") -> Series:
    return series("everstep_gpu_temperature_celsius", {"node": node, "gpu": gpu, "sensor": "core"}, samples)


def test_samples_are_kept_in_order(store: WindowStore) -> None:
    assert push(store, temperature((NOW - 2, 50.0), (NOW - 1, 51.0))) == 2
    assert push(store, temperature((NOW, 52.0))) == 1
    ((times, values),) = store.samples("everstep_gpu_temperature_celsius", node="node-0")
    assert times.tolist() == [NOW - 2, NOW - 1, NOW]
    assert values.tolist() == [50.0, 51.0, 52.0]
    assert store.num_series == 1


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        ((NOW, 82505.0), "range"),
        ((NOW, float("nan")), "range"),
        ((NOW + 60, 50.0), "clock"),
        ((NOW - 5, 50.0), "stale"),
        ((NOW - 9999, 50.0), "stale"),
        ((NOW - 1, 50.0), "duplicate"),
    ],
)
def test_refused_samples_are_counted_by_reason(store: WindowStore, sample: tuple[float, float], reason: str) -> None:
    push(store, temperature((NOW - 1, 49.0)))
    assert push(store, temperature(sample)) == 0
    assert store.rejected() == {("everstep_gpu_temperature_celsius", reason): 1}


def test_a_node_whose_clock_is_ahead_is_named_once(store: WindowStore) -> None:
    with capture_logs() as logs:
        for second in range(5):
            push(store, temperature((NOW + 300 + second, 50.0)))
    (line,) = logs
    assert (line["event"], line["node"], line["reason"]) == ("sample_refused", "node-0", "clock")
    assert line["offset_s"] == pytest.approx(300, abs=1)
    assert store.rejected() == {("everstep_gpu_temperature_celsius", "clock"): 5}


def test_counter_gate_judges_the_rate_and_forgives_a_reset(store: WindowStore) -> None:
    def steps(at: float, value: float) -> Series:
        return series("everstep_train_skipped_steps_total", {"train_job": "demo"}, [(at, value)])

    assert push(store, steps(NOW - 3, 5.0)) == 1
    assert push(store, steps(NOW - 2, 1e9)) == 0
    assert push(store, steps(NOW - 1, 2.0)) == 1
    assert store.rejected() == {("everstep_train_skipped_steps_total", "range"): 1}


def test_a_device_may_be_late_with_its_counter(store: WindowStore) -> None:
    def throttled(at: float, value: float) -> Series:
        labels = {"node": "node-0", "gpu": "0", "uuid": "u0", "reason": "power"}
        return series("everstep_gpu_throttled_seconds_total", labels, [(at, value)])

    push(store, throttled(NOW - 3, 10.0))
    assert push(store, throttled(NOW - 2, 11.2)) == 1
    assert push(store, throttled(NOW - 1, 14.0)) == 0


def test_a_bound_of_the_same_entity_is_respected(store: WindowStore) -> None:
    def watts(name: str, gpu: str, at: float, value: float) -> Series:
        return series(name, {"node": "node-0", "gpu": gpu, "uuid": f"u{gpu}"}, [(at, value)])

    push(store, watts("everstep_gpu_power_limit_watts", "0", NOW - 1, 300.0))
    assert push(store, watts("everstep_gpu_power_watts", "0", NOW - 1, 290.0)) == 1
    assert push(store, watts("everstep_gpu_power_watts", "0", NOW, 900.0)) == 0
    assert push(store, watts("everstep_gpu_power_watts", "1", NOW, 900.0)) == 1


def test_nonfinite_loss_is_evidence(store: WindowStore) -> None:
    assert push(store, series("everstep_train_loss", {"train_job": "demo"}, [(NOW, float("nan"))])) == 1


def test_unknown_metrics_take_no_samples_and_no_labels(store: WindowStore) -> None:
    assert push(store, series("up", {"node": "node-0"}, [(NOW, 1.0)])) == 0
    assert store.rejected() == {("unlisted", "unknown"): 1}
    assert store.last_push() == {}


def test_histogram_parts_are_known_by_their_base(store: WindowStore) -> None:
    name = "everstep_train_step_duration_seconds"
    parts = [series(f"{name}{suffix}", {**RANK_1, "le": "1.0"}, [(NOW, 3.0)]) for suffix in ("_bucket", "_sum")]
    assert push(store, *parts) == 2


def test_series_are_bounded(store: WindowStore) -> None:
    batch = [temperature((NOW, 50.0), gpu=str(number)) for number in range(30)]
    assert push(store, *batch) == 20
    assert store.num_series == 20
    assert store.rejected() == {("everstep_gpu_temperature_celsius", "limit"): 10}


def test_stale_marker_ends_a_series(store: WindowStore) -> None:
    push(store, temperature((NOW - 1, 50.0)))
    assert len(store.latest("everstep_gpu_temperature_celsius")) == 1
    push(store, temperature((NOW, STALE_NAN)))
    assert store.latest("everstep_gpu_temperature_celsius") == {}
    push(store, temperature((NOW + 1, 51.0)))
    assert len(store.latest("everstep_gpu_temperature_celsius")) == 1


def test_last_push_is_by_arrival(store: WindowStore) -> None:
    push(store, temperature((NOW - 3, 50.0)), at=NOW)
    assert store.last_push() == {"node-0": NOW}


def test_older_attempts_are_fenced(store: WindowStore, current: Current) -> None:
    def of(attempt: int, step: int, at: float) -> list[Series]:
        return [
            series("everstep_train_attempt", RANK_1, [(at, float(attempt))]),
            series("everstep_train_steps_total", RANK_1, [(at, float(step))]),
        ]

    current.attempt = 2
    assert push(store, *of(1, 40, NOW)) == 0
    assert store.rejected() == {
        ("everstep_train_attempt", "fenced"): 1,
        ("everstep_train_steps_total", "fenced"): 1,
    }
    assert push(store, *of(2, 35, NOW + 1), at=NOW + 1) == 2
    view = store.views.job("demo")
    assert sorted(view.attempts) == [2]
    assert view.attempt(2).ranks[1].last_step == 35


def test_the_fence_remembers_where_a_rank_ran(store: WindowStore, current: Current) -> None:
    """The former node goes on telling the old worker's end while the rank already runs elsewhere."""
    old, new = RANK_1, {**RANK_1, "node": "node-3"}
    current.attempt = 1
    push(store, series("everstep_train_attempt", old, [(NOW, 1.0)]))
    current.attempt = 2
    push(store, series("everstep_train_attempt", new, [(NOW + 1, 2.0)]), at=NOW + 1)
    late = series("everstep_worker_state", {**old, "state": "killed"}, [(NOW + 2, 1.0)])
    assert push(store, late, at=NOW + 2) == 0
    assert store.views.known("demo") is None


def test_malformed_bodies_change_nothing(store: WindowStore) -> None:
    good = decompress(encode_series([temperature((NOW, 50.0))]), max_bytes=10**6)
    with pytest.raises(WireError):
        store.apply(good + b"\x0a\xff", arrived=NOW)
    assert store.num_series == 0
    assert store.last_push() == {}


def test_steps_date_the_other_samples_whatever_their_order(store: WindowStore, current: Current) -> None:
    current.attempt = 1
    rank_0 = {**RANK_1, "rank": "0"}
    push(
        store,
        series("everstep_train_loss", {"train_job": "demo"}, [(NOW, 2.5), (NOW + 1, 2.4)]),
        series("everstep_train_step_compute_seconds", rank_0, [(NOW, 0.1), (NOW + 1, 0.2)]),
        series("everstep_train_batch_index", rank_0, [(NOW, 6.0), (NOW + 1, 7.0)]),
        series("everstep_train_learning_rate", {"train_job": "demo"}, [(NOW + 1, 0.001)]),
        series("everstep_train_steps_total", rank_0, [(NOW, 7.0), (NOW + 1, 8.0)]),
        at=NOW + 1,
    )
    view = store.views.job("demo").attempt(1)
    assert view.losses == {7: 2.5, 8: 2.4}
    assert view.compute == {7: {0: 0.1}, 8: {0: 0.2}}
    assert view.batches == {7: 6, 8: 7}
    assert view.learning_rate == 0.001


def test_absurd_ranks_are_no_ranks(store: WindowStore, current: Current) -> None:
    current.attempt = 1
    for rank in ("-1", "one", "9" * 40, "²"):
        push(store, series("everstep_train_steps_total", {**RANK_1, "rank": rank}, [(NOW, 1.0)]))
    assert store.views.known("demo") is None


@pytest.mark.parametrize("told", [float("inf"), float("nan"), -1.0, 1e300])
def test_an_attempt_that_no_agent_could_have_is_ignored(store: WindowStore, current: Current, told: float) -> None:
    current.attempt = 2
    push(store, series("everstep_train_attempt", RANK_1, [(NOW - 1, 2.0)]))
    push(store, series("everstep_train_attempt", RANK_1, [(NOW, told)]))
    assert push(store, series("everstep_train_loss", {**RANK_1, "rank": "0"}, [(NOW, 2.5)])) == 1
    assert push(store, series("everstep_train_step_compute_seconds", RANK_1, [(NOW, 0.2)])) == 1
