"""Queue waits from Slurm's `squeue`: each job that is seen to have started is observed once.

For one agent of a cluster. A job that starts and leaves Slurm's memory (MinJobAge, 300 s) between two readings is
missed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from everstep.collector.histogram import Histogram
from everstep.collector.samples import Sample
from everstep.core.errors import EverstepError
from everstep.core.metrics.system import QUEUE_PRIORITIES

METRIC = "everstep_queue_wait_seconds"
TIMEOUT_S = 20.0
MAX_QUEUES = 200
STARTED_STATES = ("RUNNING", "COMPLETING", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
OTHER = QUEUE_PRIORITIES[-1]
# Times in one zone and one format whatever the site has set: a change to summer time must not look like an hour's wait.
_COMMAND = (
    "env",
    "TZ=UTC",
    "SLURM_TIME_FORMAT=standard",
    "squeue",
    "--noheader",
    "--array",
    f"--states={','.join(STARTED_STATES)}",
    "--format=%i|%P|%q|%V|%S",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedJob:
    """`key` tells a second start of a requeued job from the first."""

    key: tuple[str, str]
    queue: str
    priority: str
    wait_s: float


class SlurmQueue:
    """What stands in the first reading is taken as old: a restarted agent must not observe running jobs again."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] | None = None
        self._histograms: dict[tuple[str, str], Histogram] = {}

    def collect(self) -> Iterable[Sample]:
        """Runs `squeue`. Raises `EverstepError` when it is missing, fails or does not end in time."""
        jobs = parse(_squeue())
        known = self._known
        self._known = {job.key for job in jobs}
        for job in jobs:
            histogram = self._histogram(job)
            if known is not None and job.key not in known and histogram is not None:
                histogram.observe(job.wait_s)
        return [sample for histogram in self._histograms.values() for sample in histogram.samples()]

    def _histogram(self, job: StartedJob) -> Histogram | None:
        pair = (job.queue, job.priority)
        if pair not in self._histograms and len(self._histograms) < MAX_QUEUES:
            self._histograms[pair] = Histogram(METRIC, (("queue", job.queue), ("priority", job.priority)))
        return self._histograms.get(pair)


def parse(text: str) -> list[StartedJob]:
    """Lines `id|partition|QOS|submitted|started`; others are left out.

    >>> parse("7|gpu|high|2026-12-01T10:00:00|2026-12-01T10:05:00\\n8|gpu|high|2026-12-01T10:00:00|N/A\\n")
    [StartedJob(key=('7', '2026-12-01T10:05:00'), queue='gpu', priority='high', wait_s=300.0)]
    """
    jobs = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 5:
            continue
        job, queue, quality, submitted, started = fields
        try:
            wait = datetime.fromisoformat(started) - datetime.fromisoformat(submitted)
        except (ValueError, TypeError):
            continue
        priority = quality.lower() if quality.lower() in QUEUE_PRIORITIES else OTHER
        jobs.append(StartedJob(key=(job, started), queue=queue, priority=priority, wait_s=wait.total_seconds()))
    return jobs


def _squeue() -> str:
    try:
        done = subprocess.run(_COMMAND, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EverstepError(
            f"squeue does not end within {TIMEOUT_S:g} s", mend="see that Slurm's controller answers"
        ) from error
    except OSError as error:
        raise EverstepError(f"squeue: {error}", mend="see what this process may run") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise EverstepError(
            f"squeue ended with {done.returncode}: {said[-1][:200] if said else 'no message'}",
            mend="install Slurm's client on this node, or unset agent.probes.slurm",
        )
    return done.stdout.decode(errors="replace")
