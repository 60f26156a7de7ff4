"""One GPU through the real bindings and the fake driver: every value with its unit, and what is absent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from fake_driver import FakeDriver

from everstep.collector.gpu.device import GpuDevice
from everstep.collector.gpu.expected import ExpectedGpus
from everstep.collector.gpu.inventory import Inventory
from everstep.collector.gpu.nvml import GpuLostError, NvmlError, NvmlSession
from everstep.collector.samples import Sample
from everstep.core.metrics import METRIC_BY_NAME, Source


def devices_of(driver: FakeDriver, *, profiles: bool = False) -> tuple[GpuDevice, ...]:
    inventory = Inventory(
        NvmlSession(driver.library),
        ExpectedGpus(None, Path("/nowhere/count")),
        on_new=lambda _: None,
        on_duplicate=lambda _: None,
        profiles=profiles,
    )
    inventory.collect()
    return inventory.devices


def values(samples: Iterable[Sample]) -> dict[tuple[str, ...], float]:
    """By metric and the label values after gpu and uuid."""
    return {
        (one.metric.removeprefix("everstep_gpu_"), *(value for _, value in one.labels[2:])): one.value
        for one in samples
    }


def test_every_metric_with_its_unit(driver: FakeDriver) -> None:
    found = values(devices_of(driver)[1].collect())
    assert found == pytest.approx(
        {
            ("info", "Fake 1", "590.48.01", "00000000:3c:00.0"): 1,
            ("temperature_celsius", "core"): 54,
            ("temperature_celsius", "memory"): 61,
            ("power_watts",): 612.345,
            ("power_limit_watts",): 700,
            ("memory_total_bytes",): 150e9,
            ("memory_used_bytes",): 60e9,
            ("utilization_ratio", "sm"): 0.97,
            ("sm_clock_hertz",): 1.98e9,
            ("throttled_seconds_total", "power"): 74,
            ("throttled_seconds_total", "thermal"): 75,
            ("throttled_seconds_total", "sync_boost"): 76,
            ("throttled_seconds_total", "board_limit"): 77,
            ("throttled_seconds_total", "low_utilization"): 78,
            ("throttled_seconds_total", "reliability"): 79,
            ("throttled_seconds_total", "sw_thermal"): 69,
            ("throttled_seconds_total", "hw_thermal"): 70,
            ("throttled_seconds_total", "power_brake"): 71,
            ("ecc_errors_total", "corrected"): 3,
            ("ecc_errors_total", "uncorrected"): 0,
            ("ecc_aggregate_errors_total", "corrected"): 55,
            ("ecc_aggregate_errors_total", "uncorrected"): 1,
            ("nvlink_errors_total", "crc_flit"): 38,
            ("nvlink_errors_total", "crc_data"): 45,
            ("nvlink_errors_total", "replay"): 52,
            ("nvlink_errors_total", "recovery"): 59,
            ("nvlink_errors_total", "ecc"): 160,
            ("nvlink_bytes_total", "transmit"): 1000 * 1024,
            ("nvlink_bytes_total", "receive"): 2000 * 1024,
            ("pcie_replays_total",): 94,
            ("pcie_bytes_total", "transmit"): 197e6,
            ("pcie_bytes_total", "receive"): 198e6,
            ("pcie_link_width_lanes", "current"): 16,
            ("pcie_link_width_lanes", "maximum"): 16,
            ("pcie_link_generation", "current"): 4,
            ("pcie_link_generation", "maximum"): 5,
            ("row_remaps_total", "corrected"): 2,
            ("row_remaps_total", "uncorrected"): 0,
            ("row_remap_state", "pending"): 0,
            ("row_remap_state", "failure"): 0,
            ("recovery_action", "none"): 1,
            ("recovery_action", "gpu_reset"): 0,
            ("recovery_action", "node_reboot"): 0,
            ("recovery_action", "drain_p2p"): 0,
            ("recovery_action", "drain_and_reset"): 0,
            ("recovery_action", "recover_imex_domain"): 0,
            ("recovery_action", "bus_reset"): 0,
            ("recovery_action", "system_reboot"): 0,
        }
    )


def test_labels_are_those_of_the_metric_table(driver: FakeDriver) -> None:
    for one in devices_of(driver)[0].collect():
        metric = METRIC_BY_NAME[one.metric]
        assert metric.source is Source.NVML
        assert tuple(name for name, _ in one.labels) == metric.label_names
        assert one.labels[:2] == (("gpu", "0"), ("uuid", "GPU-0"))
        for label, (_, value) in zip(metric.labels, one.labels, strict=True):
            assert not label.values or value in label.values


def test_values_follow_the_device(driver: FakeDriver) -> None:
    first, second = devices_of(driver)
    first.collect()
    driver.set(0, temperature=88, utilization=0)
    driver.field(0, 230, 4)
    driver.field(0, 144, 1)
    found = values(first.collect())
    assert found["temperature_celsius", "core"] == 88
    assert found["utilization_ratio", "sm"] == 0
    assert found["recovery_action", "drain_and_reset"] == 1
    assert found["recovery_action", "none"] == 0
    assert found["row_remap_state", "pending"] == 1
    assert values(second.collect())["temperature_celsius", "core"] == 54


def test_nvlink_5_reports_its_own_fields(driver: FakeDriver) -> None:
    for field in (38, 45, 52, 59, 160, 138, 139):
        driver.field("*", field, None)
    driver.field("*", 215, 7)
    driver.field("*", 221, 21)
    driver.field("*", 202, 5_000)
    driver.field("*", 204, 6_000)
    found = values(devices_of(driver)[0].collect())
    nvlink = {key: value for key, value in found.items() if key[0].startswith("nvlink")}
    assert nvlink == {
        ("nvlink_errors_total", "recovery"): 7,
        ("nvlink_errors_total", "symbol"): 21,
        ("nvlink_bytes_total", "transmit"): 5_000,
        ("nvlink_bytes_total", "receive"): 6_000,
    }


def test_a_device_that_knows_no_sum_of_links_is_asked_link_by_link(driver: FakeDriver) -> None:
    for link in range(18):
        driver.field("*", 221, link, scope=link)
    device = devices_of(driver)[0]
    assert values(device.collect())["nvlink_errors_total", "symbol"] == sum(range(18))
    driver.field(0, 221, 1000, scope=17)
    assert values(device.collect())["nvlink_errors_total", "symbol"] == sum(range(17)) + 1000


def test_what_the_device_does_not_offer_is_absent(driver: FakeDriver) -> None:
    for key in ("clock_mhz", "width", "limit_mw"):
        driver.set("*", **{key: None})
    for field in (3, 4, 82, 94, 230):
        driver.field("*", field, None)
    device = devices_of(driver)[0]
    for _ in range(2):
        found = {key[0] for key in values(device.collect())}
        assert not found & {"sm_clock_hertz", "power_limit_watts", "ecc_errors_total", "recovery_action"}
        assert not found & {"pcie_replays_total"}
        assert {"power_watts", "ecc_aggregate_errors_total"} <= found


def test_one_field_that_fails_now_is_absent_now(driver: FakeDriver) -> None:
    device = devices_of(driver)[0]
    device.collect()
    driver.field(0, 3, "!999")
    assert ("ecc_errors_total", "corrected") not in values(device.collect())
    driver.field(0, 3, 9)
    assert values(device.collect())["ecc_errors_total", "corrected"] == 9


def test_memory_without_a_sensor_is_no_cold_memory(driver: FakeDriver) -> None:
    driver.field("*", 82, 0)
    assert ("temperature_celsius", "memory") not in values(devices_of(driver)[0].collect())


def test_power_comes_from_whatever_the_driver_offers(driver: FakeDriver) -> None:
    driver.field("*", 186, None)
    assert values(devices_of(driver)[0].collect())["power_watts",] == 600
    driver.field("*", 185, None)
    assert values(devices_of(driver)[0].collect())["power_watts",] == 612


def test_an_old_driver_gives_what_it_has(old_driver: FakeDriver) -> None:
    found = values(devices_of(old_driver)[0].collect())
    assert found["temperature_celsius", "core"] == 54
    assert found["power_watts",] == 612
    assert found["memory_used_bytes",] == 60e9
    assert ("ecc_errors_total", "corrected") not in found


def test_reasons_without_a_time_are_sampled(old_driver: FakeDriver) -> None:
    device = devices_of(old_driver)[0]
    old_driver.set(0, reasons=0x40)
    first = values(device.collect())
    second = values(device.collect())
    assert second["throttled_seconds_total", "hw_thermal"] > first["throttled_seconds_total", "hw_thermal"]
    assert second["throttled_seconds_total", "power"] == 0
    assert ("throttled_seconds_total", "reliability") not in second


@pytest.mark.parametrize(
    ("version", "seconds"), [("575.51", 51.0), ("580.65.06", 0.0), ("590.44", 69.0), ("none", 0.0)]
)
def test_a_field_that_moved_is_asked_of_the_drivers_that_mean_it(
    driver: FakeDriver, version: str, seconds: float
) -> None:
    driver.set("*", driver=version)
    driver.field("*", 251, 51_000_000_000)
    found = values(devices_of(driver)[0].collect())
    assert found["throttled_seconds_total", "sw_thermal"] == seconds
    assert found["throttled_seconds_total", "thermal"] == 75


def test_tensor_cores_are_read_where_profiling_was_opted_into(driver: FakeDriver) -> None:
    driver.set(0, tensor=42)
    first, second = devices_of(driver, profiles=True)
    first.collect()
    assert values(first.collect())["utilization_ratio", "tensor"] == 0.42
    driver.set(0, tensor=43)
    assert values(first.collect())["utilization_ratio", "tensor"] == 0.43
    second.collect()
    assert ("utilization_ratio", "tensor") not in values(second.collect()), "not supported there"
    plain = devices_of(driver)[0]
    plain.collect()
    assert ("utilization_ratio", "tensor") not in values(plain.collect())


def test_a_partitioned_gpu_is_one_gpu(driver: FakeDriver) -> None:
    driver.set("*", mig=1)
    devices = devices_of(driver)
    assert [device.uuid for device in devices] == ["GPU-0", "GPU-1"]
    found = values(devices[0].collect())
    assert found["power_watts",] == 612.345
    assert ("utilization_ratio", "sm") not in found


def test_a_lost_gpu_ends_the_whole_reading(driver: FakeDriver) -> None:
    first, second = devices_of(driver)
    first.collect()
    driver.set(0, lost=1)
    with pytest.raises(GpuLostError, match="GPU 0 GPU-0 at 00000000:3b:00.0 is lost .*; look at the kernel log"):
        first.collect()
    assert second.collect()


def test_a_loss_that_only_fields_tell_of_is_a_loss(driver: FakeDriver) -> None:
    device = devices_of(driver)[0]
    device.collect()
    driver.field(0, 94, "!15")
    with pytest.raises(GpuLostError, match="field 94"):
        device.collect()


def test_an_unknown_error_of_the_driver_fails_the_reading(driver: FakeDriver) -> None:
    device = devices_of(driver)[0]
    device.collect()
    driver.set("*", driver_error=999)
    with pytest.raises(NvmlError):
        device.collect()
    driver.set("*", driver_error=0)
    assert device.collect()
