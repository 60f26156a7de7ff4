"""The `everstep` command: subcommands, their help, and the boundary where errors become one line."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from everstep import __version__
from everstep.cli import dispatch
from everstep.cli.commands import COMMANDS
from everstep.cli.main import main
from everstep.core.errors import EverstepError

NAMES = [command.name for command in COMMANDS]


def _one_line(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"everstep {__version__}\n"


def test_help_lists_every_subcommand_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert f"{command.name} " in out
        assert command.summary in out
    assert "Example: everstep demo" in out


def test_no_word_at_all_prints_the_help_and_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [*([name] for name in NAMES), ["config", "show"], ["config", "check"], ["metrics", "list"], ["metrics", "check"]],
)
def test_every_command_has_help_with_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: everstep {' '.join(words)}" in out
    assert f"Example: everstep {words[0]}" in out


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_the_table_names_what_exists_and_an_extra_that_exists(command: object) -> None:
    one = next(each for each in COMMANDS if each is command)
    assert hasattr(importlib.import_module(one.module), one.attribute)
    assert one.extra in {"agent", "all", "cli", "service", "trainer"}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["trian"], "everstep: No such command 'trian'. Did you mean 'train'?; see `everstep --help`"),
        (["--frobnicate"], "everstep: No such option: --frobnicate; see `everstep --help`"),
        (["config"], "everstep: Missing command; see `everstep config --help`"),
        (["config", "burn"], "everstep: No such command 'burn'; see `everstep config --help`"),
        (["config", "show", "--yaml"], "everstep: No such option: --yaml; see `everstep config show --help`"),
        (["config", "check"], "everstep: Missing option '--config' / '-c'; see `everstep config check --help`"),
        (["train"], "everstep: Missing option '--config' / '-c'; see `everstep train --help`"),
        (["doctor", "now"], "everstep: Got unexpected extra argument(s) (now); see `everstep doctor --help`"),
    ],
)
def test_wrong_words_are_one_line_that_names_the_help(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert _one_line(capsys.readouterr().err) == line


def test_a_number_out_of_range_names_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", "x.yaml", "--processes", "0"]) == 2
    assert "--processes" in _one_line(capsys.readouterr().err)


@pytest.mark.parametrize("command", ["agent", "serve"])
def test_a_config_that_is_not_there_is_one_line_for_every_process(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--config", str(tmp_path / "none.yaml")]) == 2
    line = _one_line(capsys.readouterr().err)
    assert line.startswith(f"everstep: cannot read configuration {tmp_path}/none.yaml (No such file or directory); ")


def _raising(error: BaseException) -> object:
    def run(words: list[str]) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            EverstepError("port 9800 is taken", mend="set listen.port"),
            2,
            "everstep: port 9800 is taken; set listen.port",
        ),
        (
            ModuleNotFoundError("No module named 'fastapi'", name="fastapi"),
            2,
            "everstep: fastapi is not installed; pip install 'everstep[service]'",
        ),
        (
            ModuleNotFoundError("No module named 'sklearn.ensemble'", name="sklearn.ensemble"),
            2,
            "everstep: sklearn is not installed; pip install 'everstep[service]'",
        ),
        (KeyboardInterrupt(), 130, None),
    ],
)
def test_the_boundary_turns_expected_errors_into_one_line_and_a_code(
    error: BaseException,
    code: int,
    line: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(dispatch, "run", _raising(error))
    assert main(["serve"]) == code
    err = capsys.readouterr().err
    assert err == ("" if line is None else f"{line}\n")


@pytest.mark.parametrize("error", [ModuleNotFoundError("gone", name="everstep.gone"), RuntimeError("a bug")])
def test_a_bug_stays_a_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "run", _raising(error))
    with pytest.raises(type(error)):
        main(["serve"])


def test_help_loads_no_subcommand() -> None:
    program = (
        "import sys; from everstep.cli.main import main; main(['--help']);"
        "heavy = ('torch', 'fastapi', 'pandas', 'sklearn', 'uvicorn', 'pydantic');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("hidden", "words", "line"),
    [
        ("typer", ["--help"], "everstep: typer is not installed; pip install 'everstep[cli]'"),
        ("typer", ["agent"], "everstep: typer is not installed; pip install 'everstep[agent]'"),
        ("prometheus_client", ["agent"], "everstep: prometheus_client is not installed; pip install 'everstep[agent]'"),
        ("fastapi", ["serve"], "everstep: fastapi is not installed; pip install 'everstep[service]'"),
        ("yaml", ["config", "show"], "everstep: yaml is not installed; pip install 'everstep[service]'"),
        (
            "torch",
            ["train", "--config", "{config}"],
            "everstep: torch is not installed; pip install 'everstep[trainer]'",
        ),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_extra(
    hidden: str, words: list[str], line: str, tmp_path: Path
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"output_dir: {tmp_path}\n")
    program = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {hidden!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from everstep.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", program, *(word.format(config=config) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, f"{line}\n")


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    command = f"{sys.executable} -m everstep.cli.main config show | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


def test_config_show_as_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"agent", "service"}
