"""The boundary between monitoring and the training loop: what fails inside a hook is counted and logged once."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

_LOGGER = logging.getLogger("everstep.callback")
_P = ParamSpec("_P")


class CountsFailures(Protocol):
    """`failures` is the number of hook calls that failed so far."""

    failures: int


_Self = TypeVar("_Self", bound=CountsFailures)


def guarded(
    hook: Callable[Concatenate[_Self, _P], None],
) -> Callable[Concatenate[_Self, _P], None]:
    """Run a hook so that the training loop never dies of it; the first failure is logged, all are counted."""

    @functools.wraps(hook)
    def boundary(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception:  # the boundary: the training loop must not die of its monitoring
            self.failures += 1
            if self.failures == 1:
                _LOGGER.exception(
                    "everstep callback: %s failed; training goes on, later failures are only counted",
                    getattr(hook, "__name__", "hook"),
                )

    return boundary
