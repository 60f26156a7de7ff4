"""One line: the problem, then the mend."""

from __future__ import annotations

import pytest

from everstep.core.errors import ConfigError, EngineError, EverstepError, ManifestError, WireError


@pytest.mark.parametrize("kind", [ConfigError, EngineError, ManifestError, WireError])
def test_an_error_prints_problem_and_mend_and_keeps_both(kind: type[EverstepError]) -> None:
    error = kind("disk full", mend="free some space")
    assert str(error) == "disk full; free some space"
    assert (error.problem, error.mend) == ("disk full", "free some space")
    assert isinstance(error, EverstepError)
