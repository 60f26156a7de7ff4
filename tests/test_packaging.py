"""What is shipped: wheel and source archive hold the rooms under `everstep` and install without any extra."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = sorted(path.name for path in (ROOT / "src" / "everstep").iterdir() if path.is_symlink())
DATA = (
    "everstep/py.typed",
    "everstep/alertrules/generated/alertmanager.yml",
    "everstep/alertrules/generated/recording.yml",
    "everstep/dashboards/json/everstep-cluster.json",
    "everstep/service/migrations/0001_start.sql",
    "everstep/service/templates/incident.html",
)
LEFT_OUT = shutil.ignore_patterns(
    ".venv", ".git", "__pycache__", "*.egg-info", ".*_cache", "build", "dist", "demo-output"
)

pytestmark = pytest.mark.integration


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, so that a build leaves nothing in it."""
    copy = tmp_path_factory.mktemp("tree") / "everstep"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
    return copy


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    program = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
    (tree / "dist").mkdir(exist_ok=True)
    name = _run([sys.executable, "-W", "ignore", "-c", program], tree).splitlines()[-1]
    return tree / "dist" / name


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the unpacked source archive, as an installer does."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    _run([*command, "--wheel-dir", str(folder), str(sdist)], folder)
    return next(folder.glob("*.whl"))


def _modules() -> set[str]:
    return {
        f"everstep/{path.relative_to(ROOT)}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_module_and_the_data_of_the_rooms(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert _modules() <= names
    assert set(DATA) <= names


def test_the_wheel_installs_nothing_beside_everstep(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"everstep", f"everstep-{wheel.name.split('-')[1]}.dist-info"}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]


def test_the_source_archive_holds_what_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md"} <= names
    assert {f"src/{name}" for name in _modules() | set(DATA)} <= names


def test_the_base_package_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """No extra, no index: what a training image gets."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    _run([*command, str(wheel)], tmp_path)
    program = (
        "import sys\n"
        "from everstep.trainer_integration import EverstepCallback\n"
        "import everstep.core.rank_record, everstep.core.manifest\n"
        "callback = EverstepCallback.from_environment({})\n"
        "callback.step_begin(0)\n"
        "print(everstep.trainer_integration.__file__)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))\n"
    )
    where, loaded = _run([str(python), "-I", "-c", program], tmp_path).splitlines()
    assert Path(where).is_relative_to(tmp_path / "venv")
    assert set(loaded.split()) <= {"everstep", "__main__"}


@pytest.mark.parametrize(("module", "extra"), [("lightning", "lightning"), ("huggingface", "huggingface")])
def test_a_callback_without_its_framework_says_what_to_install(
    wheel: Path, tmp_path: Path, module: str, extra: str
) -> None:
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    _run([*command, str(wheel)], tmp_path)
    program = f"import everstep.trainer_integration.{module}"
    done = subprocess.run([str(python), "-I", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f" is not installed; pip install 'everstep[{extra}]'")


def test_the_base_package_requires_nothing_and_each_framework_is_an_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    needs = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    assert [need for need in needs if "extra ==" not in need] == []
    of_frameworks = {
        need.partition(";")[0].rstrip("<>=,.0123456789"): need.partition("extra == ")[2]
        for need in needs
        if need.startswith(("accelerate", "pytorch-lightning", "transformers"))
    }
    assert of_frameworks == {
        "accelerate": '"huggingface"',
        "pytorch-lightning": '"lightning"',
        "transformers": '"huggingface"',
    }


def test_the_command_without_typer_says_what_to_install(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    _run([*command, str(wheel)], tmp_path)
    done = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "everstep"), "doctor"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "everstep: typer is not installed; pip install 'everstep[cli]'\n"
