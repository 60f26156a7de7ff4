"""What one GPU, as it is attached now, offers to read: found out once, so that a reading asks for nothing in vain."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from everstep.collector.gpu import calls
from everstep.collector.gpu.calls import REASON_BITS, THROTTLED, Call
from everstep.collector.gpu.fields import (
    MAX_LINKS,
    POWER,
    QUANTITIES,
    RECOVERY_ACTION,
    Answers,
    Field,
    FieldKey,
    Quantity,
    answers_in,
)
from everstep.collector.gpu.nvml import NOT_OFFERED, code_of
from everstep.collector.gpu.series import GpuSeries, Series
from everstep.collector.samples import Sample
from everstep.core.metrics.hardware_companions import RECOVERY_ACTIONS

RECOVERY = (RECOVERY_ACTION, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Where NVML shows a GPU now. Equal ones speak of the same handle."""

    handle: Any
    index: int
    generation: int

    @property
    def address(self) -> int:
        """By which two handles are compared."""
        return ctypes.cast(self.handle, ctypes.c_void_p).value or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldReading:
    """One series: the sum of its fields (more than one where a device is asked link by link), times a scale."""

    series: Series
    keys: tuple[FieldKey, ...]
    scale: float
    drop_zero: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`keys` are asked for in one call; `actions` is the state set of field 230 or empty."""

    attachment: Attachment
    fields: tuple[FieldReading, ...]
    actions: tuple[Series, ...]
    keys: tuple[FieldKey, ...]
    calls: tuple[Call, ...]
    fixed: tuple[Sample, ...]

    def samples_of(self, answers: Answers) -> Iterable[Sample]:
        for reading in self.fields:
            total = math.fsum(answers[key][1] for key in reading.keys)
            if not math.isnan(total) and not (reading.drop_zero and total == 0):
                yield reading.series.sample(total * reading.scale)
        if self.actions and answers[RECOVERY][0] == 0:
            advised = answers[RECOVERY][1]
            for number, series in enumerate(self.actions):
                yield series.sample(float(number == advised))


def ask_fields(nvml: Any, handle: Any, keys: Sequence[FieldKey]) -> Answers:
    """All of them in one call; each field has a return code of its own."""
    return answers_in(nvml.nvmlDeviceGetFieldValues(handle, keys), keys)


def explore(nvml: Any, attachment: Attachment, *, uuid: str, pci_bus_id: str, profiles: bool) -> Plan:
    """Ask the device for everything once. Raises `NVMLError` for any trouble but a thing that it does not offer."""
    series = GpuSeries(attachment.index, uuid)
    handle = attachment.handle
    driver = str(_ask(nvml, nvml.nvmlSystemGetDriverVersion) or "")
    keys = [
        (field.id, field.scope)
        for quantity in QUANTITIES
        for field in quantity.fields
        if field.since <= _major(driver) < field.before
    ]
    answers: Answers = _ask(nvml, ask_fields, nvml, handle, [*keys, RECOVERY]) or {}
    fields = [
        FieldReading(
            series=series.of(quantity.metric, quantity.label),
            keys=asked,
            scale=field.scale,
            drop_zero=quantity.drop_zero,
        )
        for quantity in QUANTITIES
        for field, asked in _choice(nvml, handle, quantity, answers)
    ]
    actions: tuple[Series, ...] = ()
    if _is_offered(answers, RECOVERY):
        actions = tuple(series.of("everstep_gpu_recovery_action", (("action", one),)) for one in RECOVERY_ACTIONS)
    return Plan(
        attachment=attachment,
        fields=tuple(fields),
        actions=actions,
        keys=(*(key for reading in fields for key in reading.keys), *((RECOVERY,) if actions else ())),
        calls=tuple(_calls(nvml, handle, series, answers, profiles=profiles)),
        fixed=tuple(_fixed(nvml, handle, series, driver=driver, pci_bus_id=pci_bus_id)),
    )


def _major(driver: str) -> int:
    """Of a driver version such as 580.65.06; 0 for one that has no number in front."""
    number = driver.partition(".")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def _is_offered(answers: Answers, key: FieldKey) -> bool:
    return key in answers and answers[key][0] not in NOT_OFFERED


def _choice(
    nvml: Any, handle: Any, quantity: Quantity, answers: Answers
) -> Iterable[tuple[Field, tuple[FieldKey, ...]]]:
    """The field to use and how to ask for it; nothing when the device offers none."""
    for field in quantity.fields:
        if _is_offered(answers, (field.id, field.scope)):
            return [(field, ((field.id, field.scope),))]
    for field in quantity.fields:
        if field.by_link and answers:
            links = ask_fields(nvml, handle, [(field.id, link) for link in range(MAX_LINKS)])
            offered = tuple(key for key, (code, _) in links.items() if code == 0)
            if offered:
                return [(field, offered)]
    return []


def _calls(nvml: Any, handle: Any, series: GpuSeries, answers: Answers, *, profiles: bool) -> Iterable[Call]:
    """Each is tried once here."""
    untimed = [reason for reason in REASON_BITS if not _is_timed(reason, answers)]
    candidates = [
        calls.memory(series),
        calls.power_limit(series),
        calls.utilization(series),
        calls.sm_clock(series),
        calls.link_width(series),
        calls.link_generation(series),
        *([calls.sampled_reasons(series, untimed)] if untimed else []),
        *([calls.tensor_utilization(series)] if profiles else []),
        *([] if any(_is_offered(answers, (one.id, one.scope)) for one in POWER.fields) else [calls.power(series)]),
    ]
    for is_old_driver in (False, True):
        core = calls.temperature(series, is_old_driver=is_old_driver)
        if _ask(nvml, core, nvml, handle) is not None:
            yield core
            break
    for call in candidates:
        if _ask(nvml, call, nvml, handle) is not None:
            yield call


def _is_timed(reason: str, answers: Answers) -> bool:
    return any(
        _is_offered(answers, (field.id, field.scope))
        for quantity in QUANTITIES
        for field in quantity.fields
        if quantity.metric == THROTTLED and quantity.label == (("reason", reason),)
    )


def _fixed(nvml: Any, handle: Any, series: GpuSeries, *, driver: str, pci_bus_id: str) -> Iterable[Sample]:
    """What does not change while the GPU is attached: its description and what its link could do."""
    label = (
        ("model", str(_ask(nvml, nvml.nvmlDeviceGetName, handle) or "")),
        ("driver", driver),
        ("pci_bus_id", pci_bus_id),
    )
    yield series.of("everstep_gpu_info", label).sample(1.0)
    for metric, ask in (
        ("everstep_gpu_pcie_link_width_lanes", nvml.nvmlDeviceGetMaxPcieLinkWidth),
        ("everstep_gpu_pcie_link_generation", nvml.nvmlDeviceGetMaxPcieLinkGeneration),
    ):
        most = _ask(nvml, ask, handle)
        if most is not None:
            yield series.of(metric, (("bound", "maximum"),)).sample(float(most))


def _ask(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, None when the device or the driver does not offer it."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if code_of(error) in NOT_OFFERED:
            return None
        raise
