"""An order that this agent does not carry out, with the HTTP status that says so."""

from __future__ import annotations

from everstep.core.errors import EverstepError


class RefusedError(EverstepError):
    """Told to who gave the order; nothing has been done."""

    def __init__(self, problem: str, *, mend: str, status: int) -> None:
        super().__init__(problem, mend=mend)
        self.status = status
