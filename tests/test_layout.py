"""The walls of the house: rooms, links, sizes, names, and what a training process may load."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "everstep"
ROOMS = (
    "alertrules",
    "bench",
    "cli",
    "collector",
    "core",
    "dashboards",
    "detector",
    "rca",
    "recovery",
    "scheduler",
    "service",
    "simulator",
    "trainer",
    "trainer_integration",
    "tuning",
)
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}
HEAVY = {"torch", "pandas", "numpy", "sklearn", "fastapi", "pydantic", "starlette", "prometheus_client", "networkx"}
FRAMEWORKS = {"accelerate", "lightning", "pytorch_lightning", "transformers"}
SOURCES = sorted(
    path
    for folder in (*ROOMS, "examples", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if not {"__pycache__", "node_modules"} & set(path.parts)
)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_package_holds_the_rooms_and_nothing_else() -> None:
    entries = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert entries == {"__init__.py", "py.typed", *ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_reached_through_its_relative_link(room: str) -> None:
    link = PACKAGE / room
    assert link.is_symlink()
    assert str(link.readlink()) == f"../../{room}"
    assert link.resolve() == ROOT / room


def test_git_keeps_the_links_as_links() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("LINKS IN GIT NOT TESTED: this is not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--stage", "src/everstep"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout.splitlines()
    modes = {line.split("\t")[1].removeprefix("src/everstep/"): line.split()[0] for line in listed}
    assert {name for name, mode in modes.items() if mode == "120000"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_enters_and_what_leaves(room: str) -> None:
    module = ast.parse((ROOT / room / "__init__.py").read_text())
    docstring = (ast.get_docstring(module) or "").lower()
    assert "enter" in docstring
    assert "leave" in docstring


def test_no_room_was_loaded_under_its_bare_name() -> None:
    for room in ROOMS:
        importlib.import_module(f"everstep.{room}")
        loaded = sys.modules.get(room)
        origin = getattr(loaded, "__file__", None) or ""
        assert not origin.startswith(str(ROOT)), f"{room} was loaded as a top-level module"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_files_and_functions_keep_their_size_and_their_names(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES
    assert not VAGUE & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
    long = [
        f"{node.name} has {(node.end_lineno or node.lineno) - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == []


def test_every_module_of_a_room_says_what_it_is() -> None:
    modules = [path for path in SOURCES if not path.is_relative_to(ROOT / "tests")]
    assert [_name(path) for path in modules if ast.get_docstring(ast.parse(path.read_text())) is None] == []


@pytest.mark.parametrize(
    "module",
    [
        "everstep",
        "everstep.core.rank_record",
        "everstep.trainer_integration",
        "everstep.trainer_integration.batches",
        "everstep.trainer_integration.tracker",
    ],
)
def test_a_training_process_loads_the_standard_library_only(module: str) -> None:
    program = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    foreign = set(loaded) - set(sys.stdlib_module_names) - {"everstep", "__main__", "__mp_main__"}
    assert not foreign & (HEAVY | FRAMEWORKS)
    # what site hooks of the environment load at start is not ours
    start = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert foreign <= {name.partition(".")[0] for name in start.split()}
