"""A bounded window over a plan: several threads take the next thing to do, one thread gets the results in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

from everstep.trainer.data.halt import POLL_S, Halt
from everstep.trainer.data.timing import Activity, StageClock

P = TypeVar("P")
R = TypeVar("R")


class Lookahead(Generic[P, R]):
    """At most `capacity` planned things are taken and not yet got. Waits raise `Halted` after the pipeline's end."""

    def __init__(self, plan: Iterator[P], halt: Halt, *, capacity: int) -> None:
        self.capacity = capacity
        self._plan = plan
        self._halt = halt
        self._results: dict[int, R] = {}
        self._num_taken = 0
        self._num_got = 0
        self._changed = threading.Condition()
        halt.wakes(self._wake)

    @property
    def num_taken(self) -> int:
        return self._num_taken

    def take(self, clock: StageClock) -> tuple[int, P]:
        """The next thing of the plan and the ticket under which to `fill` its result."""
        with self._changed, clock.during(Activity.OUTPUT):
            while self._num_taken - self._num_got >= self.capacity:
                self._halt.check()
                self._changed.wait(POLL_S)
            self._halt.check()
            ticket = self._num_taken
            self._num_taken += 1
            return ticket, next(self._plan)

    def fill(self, ticket: int, result: R) -> None:
        with self._changed:
            self._results[ticket] = result
            self._changed.notify_all()

    def get(self, clock: StageClock) -> R:
        """The result of the oldest ticket that was not got."""
        with self._changed, clock.during(Activity.INPUT):
            while self._num_got not in self._results:
                self._halt.check()
                self._changed.wait(POLL_S)
            self._halt.check()
            result = self._results.pop(self._num_got)
            self._num_got += 1
            self._changed.notify_all()
        return result

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
