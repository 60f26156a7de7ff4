"""The fake NVIDIA driver, loaded by the real bindings in this process; each test gets a library of its own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fake_nvml"))  # --import-mode=importlib leaves it out

from fake_driver import FakeDriver, build

NO_COMPILER = "GPU SOURCES NOT TESTED: no gcc to build the fake NVML library with"


@pytest.fixture(scope="session")
def nvml_libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The newest driver's library and one that lacks what an old driver lacks."""
    folder = tmp_path_factory.mktemp("nvml")
    try:
        return {"new": build(folder), "old": build(folder, is_old_driver=True)}
    except FileNotFoundError:
        pytest.skip(NO_COMPILER)


def _driver(library: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    import pynvml

    own = folder / "libnvidia-ml.so.1"
    shutil.copy(library, own)  # the loader gives one copy of a file to all who ask
    driver = FakeDriver(own, folder / "nvml-state", count=2)
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return driver


@pytest.fixture
def driver(nvml_libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """Two healthy GPUs of NVLink 4."""
    driver = _driver(nvml_libraries["new"], tmp_path, monkeypatch)
    yield driver
    driver.set("*", hang=0)  # threads of the test come home
    for gpu in range(8):
        driver.set(gpu, hang=None)


@pytest.fixture
def old_driver(nvml_libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Two GPUs below a driver without field values and without the newer temperature call."""
    return _driver(nvml_libraries["old"], tmp_path, monkeypatch)
