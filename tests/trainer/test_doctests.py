from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "everstep.trainer.checkpoint.fence",
        "everstep.trainer.optimizer",
        "everstep.trainer.worker",
        "everstep.core.exits",
    ],
)
def test_the_examples_in_docstrings_hold(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
