"""Errors that a person reads: one line that names the thing and the mend."""

from __future__ import annotations


class EverstepError(Exception):
    """Bad input or a missing part; `mend` says what the reader can do about it."""

    def __init__(self, problem: str, *, mend: str) -> None:
        super().__init__(f"{problem}; {mend}")
        self.problem = problem
        self.mend = mend


class ConfigError(EverstepError):
    """A configuration file or key that cannot be used."""


class WireError(EverstepError):
    """A body that is not the format it claims to be."""


class ManifestError(EverstepError):
    """A checkpoint whose manifest is missing, malformed or contradicted by its files."""


class EngineError(EverstepError):
    """A cluster engine that refused, failed or timed out."""
