"""How often faults happen: rates of a mature fleet per GPU-hour, shared evenly within a class.

Basis: M measured in a public trace, P from a published report, A assumed by Everstep (to be replaced by better data).
Loss spikes, bad resumes, non-finite values and corrupt checkpoints come per step or per restart; their priors here are
those rates on a reference job of 1,024 GPUs with 10 s steps, so that one table ranks all.
"""

from __future__ import annotations

from everstep.core.faults.spec import FaultClass

YOUNG_FLEET_FACTOR = 3.3
_STEPS_PER_GPU_HOUR = 360 / 1024
SPIKES_PER_STEP = 0.1 / 10_000
BAD_RESUMES_PER_RESTART = 0.02
_INTERRUPTIONS = 2.15e-5

FAULT_CLASSES: tuple[FaultClass, ...] = (
    FaultClass(
        name="GPU hardware", faults=("F01", "F02", "F06"), per_gpu_hour=6.9e-6, interrupting=True, basis="P, share A"
    ),
    FaultClass(name="NVLink", faults=("F07", "F08"), per_gpu_hour=1.7e-6, interrupting=True, basis="P, share A"),
    FaultClass(name="HBM ECC", faults=("F03", "F04"), per_gpu_hour=3.4e-6, interrupting=True, basis="P"),
    FaultClass(name="link or switch", faults=("F14", "F16"), per_gpu_hour=1.6e-6, interrupting=True, basis="P"),
    FaultClass(name="NIC", faults=("F13",), per_gpu_hour=4.2e-7, interrupting=True, basis="P, raised A"),
    FaultClass(name="host", faults=("F17", "F18"), per_gpu_hour=2.2e-6, interrupting=True, basis="P, part A"),
    FaultClass(name="storage", faults=("F21", "F22", "F24"), per_gpu_hour=3.8e-7, interrupting=True, basis="P, part A"),
    FaultClass(name="software", faults=("F25", "F26"), per_gpu_hour=3.0e-6, interrupting=True, basis="P"),
    FaultClass(name="power or thermal trip", faults=("F10", "F11"), per_gpu_hour=4.2e-7, interrupting=True, basis="P"),
    FaultClass(name="detected SDC", faults=("F30",), per_gpu_hour=2.8e-7, interrupting=True, basis="P"),
    FaultClass(name="unknown", faults=("UNKNOWN",), per_gpu_hour=1.2e-6, interrupting=True, basis="A"),
    FaultClass(
        name="slow, persistent", faults=("F09", "F12"), per_gpu_hour=2.5e-6, interrupting=False, basis="M, part A"
    ),
    FaultClass(
        name="slow, transient", faults=("F12", "F15", "F19", "F20"), per_gpu_hour=8e-6, interrupting=False, basis="A"
    ),
    FaultClass(
        name="latent precursor",
        faults=("F05", "F10", "F11"),
        per_gpu_hour=2.6e-6,
        interrupting=False,
        basis="M, part A",
    ),
    FaultClass(name="host leak", faults=("F17",), per_gpu_hour=3e-7, interrupting=False, basis="A"),
    FaultClass(name="monitoring", faults=("F31",), per_gpu_hour=1.2e-5, interrupting=False, basis="A"),
)

_PER_EVENT: dict[str, float] = {
    "F27": SPIKES_PER_STEP * _STEPS_PER_GPU_HOUR,
    "F29": BAD_RESUMES_PER_RESTART * _INTERRUPTIONS,
    "F23": BAD_RESUMES_PER_RESTART * _INTERRUPTIONS,  # no sourced rate: as often as a bad resume
    "F28": SPIKES_PER_STEP * _STEPS_PER_GPU_HOUR / 10,  # no sourced rate: every tenth spike
    "SOFTWARE": 3.0e-6,  # a worker that just ends: as often as the software class; research fleets see far more
}


def prior(fault: str) -> float:
    """Events per GPU-hour, summed over the classes that hold the fault.

    >>> f"{prior('F13'):.1e}"
    '4.2e-07'
    """
    shared = sum(kind.per_gpu_hour / len(kind.faults) for kind in FAULT_CLASSES if fault in kind.faults)
    return shared or _PER_EVENT[fault]
