"""What a person sees of a run: a line for each event, and a progress bar of steps when the output is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from everstep.cli.demo_run.verdict import Verdict


class Screen:
    """Prints to one console; with `--json` that is standard error, so that standard output stays one object."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    @contextmanager
    def steps(self, total: int) -> Iterator[None]:
        """Show progress while the block runs."""
        if not self._console.is_terminal:
            yield
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            self._progress = progress
            self._task = progress.add_task("steps", total=total, loss="")
            try:
                yield
            finally:
                self._progress = self._task = None

    def step(self, done: int, loss: float | None, what: str = "steps") -> None:
        if self._progress is not None and self._task is not None:
            said = "" if loss is None else f"loss {loss:.4f}"
            self._progress.update(self._task, completed=done, loss=said, description=what)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def event(self, offset_s: float | None, label: str, detail: str = "") -> None:
        when = f"{offset_s:+8.2f} s" if offset_s is not None else " " * 10
        self._console.print(f"{when}  {label:<28} {detail}".rstrip(), highlight=False, markup=False, soft_wrap=True)

    def verdict(self, verdict: Verdict) -> None:
        for check in verdict.checks:
            self.say(f"{'ok' if check.ok else 'FAILED':<8}{check.name}: {check.detail}")
        times = f"found in {_seconds(verdict.mttd_s)}, good step after {_seconds(verdict.mttr_s)}, "
        steps = f"{verdict.lost_steps} committed steps lost, {verdict.repeated_steps} repeated"
        if verdict.mttd_s is not None:
            self.say(times + steps)
        self.say(f"{verdict.fault}: {'ok' if verdict.ok else 'NOT OK'}")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
