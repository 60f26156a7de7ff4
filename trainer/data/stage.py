"""A thread of a stage: repeats one step until the pipeline ends, and ends the pipeline when the step fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from everstep.core.errors import EverstepError
from everstep.trainer.data.halt import DataError, Halt, Halted
from everstep.trainer.data.timing import StageClock

_LOGGER = logging.getLogger("everstep.trainer")


class StageThread(threading.Thread):
    """`step` works on one item with the thread's clock; it raises `Halted` when it is to end."""

    def __init__(self, stage: str, step: Callable[[StageClock], None], clock: StageClock, halt: Halt) -> None:
        super().__init__(name=f"data-{stage}", daemon=True)
        self._stage = stage
        self._step = step
        self._clock = clock
        self._halt = halt

    def run(self) -> None:
        try:
            with self._clock.running():
                while not self._halt.halted:
                    self._step(self._clock)
        except Halted:
            pass
        except EverstepError as error:
            self._halt.stop(error)
        except Exception as error:  # thread boundary: the consumer gets it
            _LOGGER.exception("the %s stage of the data pipeline ends", self._stage)
            self._halt.stop(_failure(self._stage, error))


def _failure(stage: str, error: Exception) -> DataError:
    failed = DataError(
        f"the {stage} stage of the data pipeline failed ({type(error).__name__}: {error})",
        mend="the worker's log holds the stack",
    )
    failed.__cause__ = error
    return failed
