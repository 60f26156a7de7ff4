"""A NVIDIA driver made of one text file: build the library, say what each GPU answers, change it while agents run."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
BUILD_TIMEOUT_S = 60
LOOK_S = 0.002
"""The library looks at its file once a millisecond; what was written is in force when a call here returns."""

FIELDS: dict[str, int | str] = {
    "f82": 61,
    "f186": 612_345,
    "f185": 600_000,
    "f74": 74_000_000_000,
    "f75": 75_000_000_000,
    "f76": 76_000_000_000,
    "f77": 77_000_000_000,
    "f78": 78_000_000_000,
    "f79": 79_000_000_000,
    "f269": 69_000_000_000,
    "f270": 70_000_000_000,
    "f271": 71_000_000_000,
    "f3": 3,
    "f4": 0,
    "f5": 55,
    "f6": 1,
    "f38": 38,
    "f45": 45,
    "f52": 52,
    "f59": 59,
    "f160": 160,
    "f94": 94,
    "f197": 197_000_000,
    "f198": 198_000_000,
    "f138": 1000,
    "f139": 2000,
    "f142": 2,
    "f143": 0,
    "f144": 0,
    "f145": 0,
    "f230": 0,
}
"""By field id, with NVML's units: milliwatts, nanoseconds, KiB. An NVLink 4 device."""

VALUES: dict[str, int | str] = {
    "temperature": 54,
    "power_mw": 612_000,
    "limit_mw": 700_000,
    "memory_total": 150_000_000_000,
    "memory_used": 60_000_000_000,
    "utilization": 97,
    "clock_mhz": 1980,
    "width": 16,
    "max_width": 16,
    "generation": 4,
    "max_generation": 5,
    "reasons": 0,
}


def build(folder: Path, *, is_old_driver: bool = False) -> Path:
    """Compile the library into a folder. Raises `FileNotFoundError` without gcc."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("gcc")
    library = folder / ("libold.so" if is_old_driver else "libnvidia-ml.so.1")
    options = ["-DOLD_DRIVER"] if is_old_driver else []
    subprocess.run(
        [
            compiler,
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            *options,
            "-o",
            library,
            SOURCE,
            "-lpthread",
        ],
        check=True,
        timeout=BUILD_TIMEOUT_S,
    )
    return library


class FakeDriver:
    """The state file of a library; the process that loads the library finds it by `environment`."""

    def __init__(self, library: Path, state: Path, *, count: int) -> None:
        self.library = library
        self.state = state
        self.environment = {"FAKE_NVML_STATE": str(state)}
        self._lines: dict[tuple[str, str], str] = {}
        self._events: list[str] = []
        self.set("*", **VALUES, **FIELDS, count=count)

    def set(self, gpu: int | str, **values: int | str | None) -> None:
        """What a GPU (or `"*"`: all) answers from now on; None takes an answer of this GPU back.

        `!3` is NVML's error 3. Further keys of a GPU: `lost`, `hang`, `uuid`, `name`, `mig`, `tensor`; of all: `count`,
        `driver`, `init_error`, `driver_error`, `wait_error` and `event_poll_us` (how often a wait for events looks).
        """
        for key, value in values.items():
            if value is None:
                self._lines.pop((str(gpu), key), None)
            else:
                self._lines[str(gpu), key] = str(value)
        self._write()

    def field(self, gpu: int | str, field: int, value: int | str | None, *, scope: int | None = None) -> None:
        self.set(gpu, **{f"f{field}" if scope is None else f"f{field}.{scope}": value})

    def xid(self, gpu: int, code: int) -> None:
        """An event that waits to be fetched."""
        self._events.append(f"{gpu} event {len(self._events) + 1} {code}")
        self._write()

    def _write(self) -> None:
        # lines of all GPUs first: later ones win
        ordered = sorted(self._lines.items(), key=lambda item: item[0][0] != "*")
        lines = [f"{gpu} {key} {value}" for (gpu, key), value in ordered]
        draft = self.state.with_suffix(".draft")
        draft.write_text("\n".join([*lines, *self._events]) + "\n")
        draft.replace(self.state)
        time.sleep(LOOK_S)
