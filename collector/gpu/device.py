"""One physical GPU: everything that NVML tells of it, in one reading.

A reading fails as a whole when the GPU is lost or when nothing at all can be read of it; what a single call or field
does not answer is absent. Runs on the thread of its own watched source.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from everstep.collector.gpu.nvml import GPU_GONE, NOT_OFFERED, GpuLostError, NvmlError, NvmlSession, code_of
from everstep.collector.gpu.plan import Attachment, Plan, ask_fields, explore
from everstep.collector.samples import Sample


class GpuDevice:
    """`attach` is called by the inventory's thread, `collect` by the device's own.

    `profiles` adds the utilisation of the tensor cores, from the profiling counters.
    """

    def __init__(self, session: NvmlSession, *, uuid: str, pci_bus_id: str, profiles: bool = False) -> None:
        self.uuid = uuid
        self.pci_bus_id = pci_bus_id
        self.index = 0
        """That NVML gives the GPU now, or gave it last."""
        self._session = session
        self._profiles = profiles
        self._attachment: Attachment | None = None
        self._plan: Plan | None = None

    @property
    def attachment(self) -> Attachment | None:
        return self._attachment

    def attach(self, attachment: Attachment | None) -> None:
        """Where the GPU is now; None when NVML does not show it any more."""
        if attachment is not None:
            self.index = attachment.index
        self._attachment = attachment

    def collect(self) -> Iterable[Sample]:
        """Raises `GpuLostError` or `NvmlError`; then nothing of this reading counts."""
        attachment = self._attachment
        if attachment is None:
            raise self._lost("NVML does not show it")
        with self._session.use() as nvml:
            try:
                return self._read(nvml, attachment)
            except nvml.NVMLError as error:
                if code_of(error) in GPU_GONE:
                    raise self._lost(str(error)) from None
                raise

    def _read(self, nvml: Any, attachment: Attachment) -> list[Sample]:
        plan = self._plan
        if plan is None or plan.attachment is not attachment:
            plan = self._plan = explore(
                nvml, attachment, uuid=self.uuid, pci_bus_id=self.pci_bus_id, profiles=self._profiles
            )
        samples: list[Sample] = []
        for call in plan.calls:  # before the fields: power is judged by its limit
            try:
                samples += call(nvml, attachment.handle)
            except nvml.NVMLError as error:
                if code_of(error) not in NOT_OFFERED:
                    raise
        if plan.keys:
            answers = ask_fields(nvml, attachment.handle, plan.keys)
            for (field, _), (code, _) in answers.items():
                if code in GPU_GONE:
                    raise self._lost(f"field {field} answers with error {code}")
            samples += plan.samples_of(answers)
        if not samples:
            raise NvmlError(f"nothing can be read of GPU {self.uuid}", mend="look at `nvidia-smi -q`")
        return [*plan.fixed, *samples]

    def _lost(self, reason: str) -> GpuLostError:
        return GpuLostError(
            f"GPU {self.index} {self.uuid} at {self.pci_bus_id} is lost ({reason})",
            mend="look at the kernel log for an Xid; reset the GPU or restart the node",
        )
