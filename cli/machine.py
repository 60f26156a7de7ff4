"""What this machine has: one small function a fact, each bounded in time, none changing anything."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

LEAST_PYTHON = (3, 11)
LEAST_SHARED_BYTES = 64 * 2**20  # rank records and the memory tier of a small job
LEAST_DISK_BYTES = 2 * 2**30  # three checkpoints, logs and the database of a small job
PORTS = {"service": 9800, "agent": 9810}
TORCH_TIMEOUT_S = 120.0
PY_SPY_TIMEOUT_S = 10.0
_ROLES = ("agent", "service", "trainer", "dashboards", "cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`found` says what is there, `mend` how to get what is not; `required` means that nothing runs without it."""

    name: str
    ok: bool
    found: str
    mend: str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program looked up on the PATH under any of its names."""

    name: str
    commands: tuple[str, ...]
    purpose: str
    mend: str


TOOLS = (
    Tool(
        name="py-spy",
        commands=("py-spy",),
        purpose="stacks of hanging workers; faulthandler is used without it",
        mend="pip install 'everstep[agent]'",
    ),
    Tool(
        name="prometheus",
        commands=("prometheus",),
        purpose="long-term history and dashboards",
        mend="apt-get install prometheus",
    ),
    Tool(
        name="promtool",
        commands=("promtool",),
        purpose="tests of the alert rules",
        mend="apt-get install prometheus",
    ),
    Tool(
        name="node_exporter",
        commands=("node_exporter", "prometheus-node-exporter"),
        purpose="host metrics for Prometheus",
        mend="apt-get install prometheus-node-exporter",
    ),
)


def examine() -> tuple[Check, ...]:
    """Every check, in the order to print; takes a few seconds, most of it the import of torch."""
    return (
        check_python(),
        check_shared_memory(Path("/dev/shm")),  # noqa: S108 - asked about, not written to
        check_disk(Path.cwd()),
        *check_packages(),
        check_torch(),
        *(check_tool(tool) for tool in TOOLS),
        check_tracing(),
        check_nvml(),
        *(check_port(role, port) for role, port in PORTS.items()),
    )


def check_python() -> Check:
    return Check(
        name="python",
        ok=sys.version_info >= LEAST_PYTHON,
        found=f"{platform.python_version()} at {sys.executable}",
        mend="install Python 3.11 or newer",
        required=True,
    )


def check_shared_memory(path: Path) -> Check:
    """Rank records live there."""
    mend = f"mount a tmpfs of at least {LEAST_SHARED_BYTES >> 20} MiB there (docker: --shm-size=1g)"
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        return Check(name=str(path), ok=False, found="not a writable folder", mend=mend, required=True)
    free = shutil.disk_usage(path).free
    enough = free >= LEAST_SHARED_BYTES
    return Check(name=str(path), ok=enough, found=f"{free >> 20} MiB free", mend=mend, required=True)


def check_disk(path: Path) -> Check:
    free = shutil.disk_usage(path).free
    return Check(
        name="disk",
        ok=free >= LEAST_DISK_BYTES,
        found=f"{free >> 20} MiB free at {path}",
        mend=f"free at least {LEAST_DISK_BYTES >> 20} MiB for checkpoints and logs",
        required=True,
    )


def check_packages() -> Iterator[Check]:
    """For each role, whether the packages of its extra are installed."""
    wanted = _requirements()
    for role in _ROLES:
        absent = [package for package in wanted.get(role, ()) if not _installed(package)]
        yield Check(
            name=f"packages for {role}",
            ok=not absent,
            found=f"without {', '.join(absent)}" if absent else "all installed",
            mend=f"pip install 'everstep[{role}]'",
        )


def _requirements() -> dict[str, list[str]]:
    """Package names by extra, from the metadata of the installed distribution."""
    try:
        lines = metadata.requires("everstep") or []
    except metadata.PackageNotFoundError:
        lines = []
    wanted: dict[str, list[str]] = {}
    for line in lines:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        package = re.match(r"[\w.-]+", line)
        if extra and package:
            wanted.setdefault(extra[1], []).append(package[0])
    return wanted


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def check_torch() -> Check:
    """Imports torch in a process of its own: a broken installation may end the importing process."""
    version, problem = _output([sys.executable, "-c", "import torch; print(torch.__version__)"], TORCH_TIMEOUT_S)
    return Check(
        name="torch",
        ok=not problem,
        found=version or f"cannot be imported ({problem})",
        mend="pip install 'everstep[trainer]' where training processes run",
    )


def check_tool(tool: Tool) -> Check:
    path = next(filter(None, map(_find, tool.commands)), None)
    return Check(
        name=tool.name,
        ok=path is not None,
        found=path or f"not found ({tool.purpose})",
        mend=tool.mend,
    )


def _find(command: str) -> str | None:
    """On the PATH, or beside this interpreter, where pip puts programs."""
    return shutil.which(command) or shutil.which(command, path=str(Path(sys.executable).parent))


def check_tracing() -> Check:
    """Lets py-spy look at this very process: the same permission that it needs for a worker."""
    mend = "give the agent CAP_SYS_PTRACE, or set kernel.yama.ptrace_scope to 0; until then faulthandler is used"
    program = _find("py-spy")
    if program is None:
        return Check(name="ptrace permission", ok=False, found="not tried, py-spy is missing", mend=TOOLS[0].mend)
    _, problem = _output([program, "dump", "--pid", str(os.getpid())], PY_SPY_TIMEOUT_S)
    return Check(
        name="ptrace permission",
        ok=not problem,
        found=f"py-spy was refused ({problem})" if problem else "py-spy can read other processes",
        mend=mend,
    )


def _output(command: list[str], timeout_s: float) -> tuple[str, str]:
    """(last line of standard output, problem); the problem is empty when the command succeeded."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return "", f"no answer within {timeout_s:g} s"
    except OSError as error:
        return "", str(error.strerror)
    if done.returncode != 0:
        return "", _last_line(done.stderr) or f"exit code {done.returncode}"
    return _last_line(done.stdout), ""


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "")


def check_nvml() -> Check:
    mend = "install the NVIDIA driver if this node has GPUs; without it no GPU metric is collected"
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return Check(name="NVML", ok=False, found="no NVIDIA driver library", mend=mend)
    status = int(library.nvmlInit_v2())
    if status != 0:
        return Check(name="NVML", ok=False, found=f"the driver answers with error {status}", mend=mend)
    count = ctypes.c_uint(0)
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    library.nvmlShutdown()
    return Check(name="NVML", ok=True, found=f"{count.value} GPUs", mend=mend)


def check_port(role: str, port: int) -> Check:
    """Whether the role's default port is free on loopback; a running Everstep takes it, too."""
    name = f"port {port} ({role})"
    mend = f"fine if Everstep runs; else set {role}.listen.port"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return Check(name=name, ok=False, found=f"{error.strerror}", mend=mend)
    return Check(name=name, ok=True, found="free", mend="")
