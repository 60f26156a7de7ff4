"""The fault table: 31 kinds and two verdicts outside them, the XID policy, the rates; all else is derived from it.

Source: the fault library reference (sections 2, 3 and 6); `docs/faults.md` is generated from here.
"""

from everstep.core.faults.gpu import GPU_FAULTS
from everstep.core.faults.host import HOST_FAULTS
from everstep.core.faults.job import JOB_FAULTS
from everstep.core.faults.rates import FAULT_CLASSES
from everstep.core.faults.spec import Fault, FaultClass, Symptom, XidPolicy
from everstep.core.faults.verdicts import SOFTWARE, UNKNOWN
from everstep.core.faults.xid import AUTOMATIC_XIDS, XID_POLICY

FAULTS: tuple[Fault, ...] = (*GPU_FAULTS, *HOST_FAULTS, *JOB_FAULTS)
"""F01 to F31, in order."""

VERDICTS: tuple[Fault, ...] = (*FAULTS, SOFTWARE, UNKNOWN)
"""Everything that a root cause may name."""

FAULT_BY_ID: dict[str, Fault] = {fault.id: fault for fault in VERDICTS}
FAULT_BY_NAME: dict[str, Fault] = {fault.name: fault for fault in VERDICTS}

__all__ = [
    "AUTOMATIC_XIDS",
    "FAULTS",
    "FAULT_BY_ID",
    "FAULT_BY_NAME",
    "FAULT_CLASSES",
    "SOFTWARE",
    "UNKNOWN",
    "VERDICTS",
    "XID_POLICY",
    "Fault",
    "FaultClass",
    "Symptom",
    "XidPolicy",
]
