from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out

from fake_sysfs import values

from everstep.collector import slurm_queue
from everstep.collector.slurm_queue import METRIC, SlurmQueue, parse
from everstep.core.errors import EverstepError
from everstep.core.metrics import METRIC_BY_NAME

# Any squeue that gives these lines for these options will do; the script refuses other options.
SCRIPT = """#!/bin/sh
[ "$TZ" = UTC ] && [ "$SLURM_TIME_FORMAT" = standard ] || exit 9
case "$*" in
  "--noheader --array --states=RUNNING,"*" --format=%i|%P|%q|%V|%S") cat "$(dirname "$0")/jobs" ;;
  *) echo "squeue: unrecognized option" >&2; exit 2 ;;
esac
"""
OLD = "1|gpu|normal|2026-12-01T09:00:00|2026-12-01T09:30:00\n"
NEW = "2|gpu|High|2026-12-01T10:00:00|2026-12-01T10:05:00\n"


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the fake squeue prints."""
    script = tmp_path / "squeue"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tmp_path / "jobs"
    path.write_text(OLD)
    return path


def test_a_started_job_is_observed_once(jobs: Path) -> None:
    queue = SlurmQueue()
    assert values(queue.collect())[(f"{METRIC}_count", "gpu", "normal")] == 0
    jobs.write_text(OLD + NEW)
    for _ in range(2):
        found = values(queue.collect())
        assert found[(f"{METRIC}_count", "gpu", "high")] == 1
        assert found[(f"{METRIC}_sum", "gpu", "high")] == 300
        assert found[(f"{METRIC}_bucket", "gpu", "high", "60.0")] == 0
        assert found[(f"{METRIC}_bucket", "gpu", "high", "300.0")] == 1
        assert found[(f"{METRIC}_count", "gpu", "normal")] == 0


def test_a_requeued_job_waits_again(jobs: Path) -> None:
    queue = SlurmQueue()
    list(queue.collect())
    jobs.write_text(OLD.replace("09:30:00", "11:00:00"))
    assert values(queue.collect())[(f"{METRIC}_sum", "gpu", "normal")] == 7200


def test_priorities_are_a_closed_set() -> None:
    lines = "".join(f"{at}|gpu|{name}|2026-12-01T10:00:00|2026-12-01T10:05:00\n" for at, name in enumerate("abcß"))
    assert {job.priority for job in parse(lines)} == {"other"}
    assert set(METRIC_BY_NAME[METRIC].labels[1].values) == {"low", "normal", "high", "other"}


@pytest.mark.parametrize(
    "line", ["", "x", "1|gpu|normal|N/A|N/A", "1|gpu|normal|2026-12-01T10:00:00|", "1|2|3|4|5|6", "\0|\0|\0|\0|\0"]
)
def test_other_lines_are_left_out(line: str) -> None:
    assert [job.key[0] for job in parse(f"{line}\n{NEW}")] == ["2"]


def test_queues_are_bounded(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_queue, "MAX_QUEUES", 2)
    jobs.write_text("".join(OLD.replace("gpu", f"q{at}") for at in range(5)))
    assert {key[1] for key in values(SlurmQueue().collect())} == {"q0", "q1"}


def test_a_failing_squeue_is_one_line(jobs: Path) -> None:
    jobs.with_name("squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact' >&2\nexit 1\n")
    with pytest.raises(EverstepError, match=r"^squeue ended with 1: slurm_load_jobs error: Unable to contact; "):
        list(SlurmQueue().collect())


def test_a_hanging_squeue_is_left(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_queue, "TIMEOUT_S", 0.2)
    jobs.with_name("squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(EverstepError, match=r"^squeue does not end within 0.2 s; "):
        list(SlurmQueue().collect())


def test_a_node_without_squeue(jobs: Path) -> None:
    jobs.with_name("squeue").unlink()
    with pytest.raises(EverstepError, match=r"ended with 127: .*squeue.*unset agent.probes.slurm"):
        list(SlurmQueue().collect())
