"""The fence on shared storage: an attempt that has been replaced can neither start nor commit.

`fence.json` also remembers at which step each attempt resumed. A copy that an older attempt wrote beyond that step has
been given up: it must not win later, when the node that holds it comes back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from everstep.core.errors import EverstepError

FENCE = "fence.json"


class FencedError(EverstepError):
    """A newer attempt of the job has taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """`resumed` maps an attempt to the step that it continued from."""

    attempt: int = 0
    resumed: Mapping[int, int] = field(default_factory=dict)

    def gave_up(self, *, attempt: int, step: int) -> bool:
        """Whether some later attempt went back behind this step.

        >>> Lineage(attempt=2, resumed={2: 40}).gave_up(attempt=1, step=41)
        True
        """
        return any(later > attempt and start < step for later, start in self.resumed.items())


class Fence:
    """The fence of one job; `attempt` is the one that this process belongs to."""

    def __init__(self, directory: Path, attempt: int) -> None:
        self._path = directory / FENCE
        self._attempt = attempt
        self._seen: tuple[int, int] | None = None

    def read(self) -> Lineage:
        """Raises `EverstepError` when the file is there and not readable."""
        return read_fence(self._path.parent)

    def check(self) -> None:
        """Raises `FencedError` when a newer attempt has raised the fence. Costs one `stat` while nothing changes."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return
        seen = (stat.st_mtime_ns, stat.st_ino)
        if seen == self._seen:
            return
        found = self.read().attempt
        if found > self._attempt:
            raise FencedError(
                f"attempt {self._attempt} is fenced off by attempt {found}", mend="let the newer attempt run"
            )
        self._seen = seen

    def start(self) -> None:
        """Raise the fence to this attempt; rank 0 only. Raises `FencedError` when a newer one holds it."""
        self.check()
        self._write(self.read().resumed)

    def resumed(self, step: int) -> None:
        """Record where this attempt continues; rank 0 only, before its first commit."""
        self.check()
        self._write({**self.read().resumed, self._attempt: step})

    def _write(self, resumed: Mapping[int, int]) -> None:
        fresh = self._path.with_name(f".{FENCE}.{os.getpid()}")
        with fresh.open("w") as file:
            json.dump({"attempt": self._attempt, "resumed": dict(resumed)}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self._path)


def read_fence(directory: Path) -> Lineage:
    """The fence of a checkpoint directory; attempt 0 when there is none. Raises `EverstepError` on a damaged one."""
    path = directory / FENCE
    try:
        data = json.loads(path.read_bytes())
        resumed = {int(attempt): int(step) for attempt, step in data.get("resumed", {}).items()}
        return Lineage(attempt=int(data["attempt"]), resumed=resumed)
    except FileNotFoundError:
        return Lineage()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise EverstepError(
            f"{path} is not a readable fence", mend="delete it when no other attempt of the job runs"
        ) from error
