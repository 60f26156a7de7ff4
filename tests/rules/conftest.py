"""promtool, or one loud line that says what was not tested."""

import shutil

import pytest


@pytest.fixture(scope="session")
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("ALERT RULES NOT TESTED: promtool is missing; apt-get install prometheus")
    return path
