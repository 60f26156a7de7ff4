"""`everstep_train_run_info`: which attempt of which run a job is in, told by the node of its rank 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from everstep.collector.records import RecordWatcher
from everstep.collector.samples import Labels, Sample
from everstep.core.rank_record import RankSnapshot
from everstep.core.settings import JobCommand

RUN_ID = "EVERSTEP_RUN_ID"


class RunInfo:
    """The only series that carries the attempt. A job that this agent does not know has no mesh."""

    def __init__(self, records: RecordWatcher, jobs: Sequence[JobCommand]) -> None:
        self._records = records
        self._jobs = {job.name: job for job in jobs}

    def collect(self) -> Iterable[Sample]:
        for run in self._records.runs():
            yield Sample(metric="everstep_train_run_info", labels=run_labels(run, self._jobs.get(run.job)), value=1.0)


def run_labels(run: RankSnapshot, job: JobCommand | None) -> Labels:
    """`run_id` is the job's own variable of that name, else the name of the job."""
    labels = (
        ("train_job", run.job),
        ("run_id", job.environment.get(RUN_ID, run.job) if job is not None else run.job),
        ("attempt", str(run.attempt)),
        ("world_size", str(run.world_size)),
    )
    if job is None:
        return (*labels, ("dp", ""), ("tp", ""), ("pp", ""))
    inner = job.tensor_parallel * job.pipeline_parallel
    mesh = (run.world_size // inner, job.tensor_parallel, job.pipeline_parallel)
    return (*labels, *zip(("dp", "tp", "pp"), map(str, mesh), strict=True))
