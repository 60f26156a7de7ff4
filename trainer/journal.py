"""What rank 0 writes for people and tools: one JSON line a step, one a resume, and the result at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from everstep.core.errors import ConfigError

STEPS = "steps.jsonl"
RESUMES = "resumes.jsonl"
RESULT = "result.json"


class Journal:
    """Appends below `output_dir`; inert on every rank but 0."""

    def __init__(self, output_dir: Path, *, active: bool) -> None:
        """Raises `ConfigError` when the folder cannot be written."""
        self._directory = output_dir
        self._active = active
        self._steps: TextIO | None = None
        if active:
            try:
                output_dir.mkdir(parents=True, exist_ok=True)
                self._steps = (output_dir / STEPS).open("a", buffering=1)
            except OSError as error:
                raise ConfigError(
                    f"cannot write to {output_dir} ({error.strerror})", mend="set output_dir to a writable folder"
                ) from error

    def step(self, entry: dict[str, Any]) -> None:
        if self._steps is not None:
            self._steps.write(json.dumps(entry) + "\n")

    def resume(self, entry: dict[str, Any]) -> None:
        if self._active:
            with (self._directory / RESUMES).open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def result(self, entry: dict[str, Any]) -> None:
        """Replace the result atomically."""
        if self._active:
            fresh = self._directory / f".{RESULT}"
            fresh.write_text(json.dumps(entry) + "\n")
            fresh.rename(self._directory / RESULT)

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()
