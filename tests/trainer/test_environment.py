from __future__ import annotations

from pathlib import Path

import pytest

from everstep.core.engine import ResumePoint
from everstep.core.errors import ConfigError
from everstep.trainer.environment import WorkerEnvironment


def test_the_agents_variables_are_read() -> None:
    environment = WorkerEnvironment.read(
        {
            "RANK": "2",
            "WORLD_SIZE": "3",
            "MASTER_ADDR": "127.0.0.1",
            "EVERSTEP_ATTEMPT": "4",
            "EVERSTEP_MEMORY_DIR": "/scratch/m",
            "EVERSTEP_RESUME": '{"step":40,"tier":"disk","attempt":1}',
            "EVERSTEP_SKIP_BATCHES": "57,91",
        }
    )
    assert (environment.rank, environment.world_size, environment.attempt, environment.launched) == (2, 3, 4, True)
    assert environment.memory_dir == Path("/scratch/m")
    assert environment.resume == ResumePoint(step=40, tier="disk", attempt=1)
    assert environment.skip_batches == {57, 91}


def test_without_variables_it_is_a_world_of_one_without_a_controller() -> None:
    assert WorkerEnvironment.read({"EVERSTEP_RESUME": "auto", "EVERSTEP_SKIP_BATCHES": ""}) == WorkerEnvironment()


@pytest.mark.parametrize(
    ("name", "value"),
    [("RANK", "one"), ("EVERSTEP_RESUME", "newest"), ("EVERSTEP_RESUME", '{"step":1}'), ("EVERSTEP_SKIP_BATCHES", "a")],
)
def test_a_variable_that_cannot_be_understood_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        WorkerEnvironment.read({name: value})
