"""The attempt of a job and its mesh, told once by the node of rank 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.collector.records import RecordWatcher
from everstep.collector.run_info import RunInfo
from everstep.core.metrics import METRIC_BY_NAME
from everstep.core.rank_record import RankRecordWriter
from everstep.core.settings import JobCommand


def labels_of(root: Path, jobs: list[JobCommand], *, rank: int = 0, world_size: int = 8) -> list[dict[str, str]]:
    (root / "demo").mkdir()
    writer = RankRecordWriter(
        root / "demo" / f"rank-{rank}.rec", job="demo", rank=rank, world_size=world_size, attempt=3
    )
    writer.publish()
    records = RecordWatcher(root, lambda *_: True)
    records.poll()
    return [dict(sample.labels) for sample in RunInfo(records, jobs).collect()]


def test_labels_are_those_of_the_table(tmp_path: Path) -> None:
    job = JobCommand(name="demo", program=["-c", "pass"], tensor_parallel=2, pipeline_parallel=2)
    (labels,) = labels_of(tmp_path, [job])
    assert labels == {
        "train_job": "demo", "run_id": "demo", "attempt": "3", "world_size": "8", "dp": "2", "tp": "2", "pp": "2",
    }  # fmt: skip
    assert tuple(labels) == METRIC_BY_NAME["everstep_train_run_info"].label_names


def test_a_run_can_have_a_name(tmp_path: Path) -> None:
    job = JobCommand(name="demo", program=["-c", "pass"], environment={"EVERSTEP_RUN_ID": "run-7"})
    (labels,) = labels_of(tmp_path, [job])
    assert labels["run_id"] == "run-7"
    assert labels["dp"] == "8"


def test_the_mesh_of_a_foreign_job_is_not_known(tmp_path: Path) -> None:
    (labels,) = labels_of(tmp_path, [])
    assert (labels["attempt"], labels["dp"], labels["tp"], labels["pp"]) == ("3", "", "", "")


@pytest.mark.parametrize("rank", [1, 7])
def test_only_rank_zero_speaks_for_the_run(tmp_path: Path, rank: int) -> None:
    assert labels_of(tmp_path, [], rank=rank) == []
