"""The GPU library of the test suite, for benches: a tiny C `libnvidia-ml.so.1` that the real binding loads.

Development machines have no GPU. Without the suite (an installed package) or a C compiler the agent runs without GPUs,
and the bench says so.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SUITE = Path(__file__).resolve().parents[2] / "tests/collector/fake_nvml/fake_driver.py"
NONE = "no GPU source"
FAKE = "nvidia-ml-py on the test suite's library"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSource:
    """What an agent needs to see GPUs: its settings and its environment; `name` says where the values come from."""

    name: str = NONE
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def gpu_source(folder: Path, *, num_gpus: int) -> GpuSource:
    """Build the library below `folder`; an empty source where that cannot be done."""
    spec = importlib.util.spec_from_file_location("everstep_bench_fake_driver", SUITE) if SUITE.is_file() else None
    if spec is None or spec.loader is None:
        return GpuSource()
    suite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suite)
    try:
        library = suite.build(folder)
    except FileNotFoundError:
        return GpuSource()
    driver = suite.FakeDriver(library, folder / "gpus.txt", count=num_gpus)
    driver.set("*", event_poll_us=500_000)  # a real driver wakes who waits for events; this one looks
    return GpuSource(name=FAKE, settings={"nvml_library": str(library)}, environment=driver.environment)
