"""Everstep: observability, root-cause analysis and self-healing for large-scale LLM training.

Each sub-package is one room of the design; `docs/architecture.md` walks the data flow through them.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("everstep")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"

__all__ = ["__version__"]
