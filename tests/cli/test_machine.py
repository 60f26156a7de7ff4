"""The facts that `everstep doctor` reports, each with the way to mend it."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from everstep.cli import doctor as doctor_module
from everstep.cli import machine
from everstep.cli.machine import Check, Tool, check_port, check_python, check_shared_memory, check_tool
from everstep.cli.main import main
from everstep.core.settings import Settings


def _check(*, ok: bool, required: bool) -> Check:
    return Check(name="thing", ok=ok, found="seen", mend="mend it", required=required)


def test_this_python_is_good_enough() -> None:
    check = check_python()
    assert (check.ok, check.required) == (True, True)
    assert sys.executable in check.found


def test_shared_memory_that_is_not_there_names_the_mend(tmp_path: Path) -> None:
    assert check_shared_memory(tmp_path).ok
    missing = check_shared_memory(tmp_path / "none")
    assert (missing.ok, missing.required) == (False, True)
    assert "--shm-size" in missing.mend


def test_a_tool_is_found_under_any_of_its_names() -> None:
    tool = Tool(name="shell", commands=("no-such-command-here", "sh"), purpose="p", mend="m")
    assert check_tool(tool).ok
    absent = check_tool(Tool(name="x", commands=("no-such-command-here",), purpose="to see", mend="apt-get install x"))
    assert (absent.ok, absent.found, absent.mend) == (False, "not found (to see)", "apt-get install x")


def test_a_port_in_use_is_told_from_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not check_port("service", port).ok
        assert "service.listen.port" in check_port("service", port).mend
    assert check_port("service", port).ok


def test_the_ports_are_the_defaults_of_the_settings() -> None:
    settings = Settings()
    assert machine.PORTS["service"] == settings.service.listen.port
    assert machine.PORTS["agent"] == settings.agent.listen.port


def test_the_packages_of_each_role_come_from_the_metadata() -> None:
    checks = {check.name: check for check in machine.check_packages()}
    assert set(checks) == {f"packages for {role}" for role in ("agent", "service", "trainer", "dashboards", "cli")}
    assert checks["packages for cli"].ok
    assert "torch" in machine._requirements()["trainer"]


def test_a_package_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_requirements", lambda: {"agent": ["typer", "no-such-package-here"]})
    agent = next(machine.check_packages())
    assert (agent.ok, agent.found) == (False, "without no-such-package-here")
    assert agent.mend == "pip install 'everstep[agent]'"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["no-such-command-here"], "No such file or directory"),
        ([sys.executable, "-c", "import sys; sys.exit(3)"], "exit code 3"),
        ([sys.executable, "-c", "raise RuntimeError('broken')"], "RuntimeError: broken"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "no answer within 0.5 s"),
    ],
)
def test_a_probe_that_fails_says_why_within_its_time(command: list[str], problem: str) -> None:
    assert machine._output(command, 0.5 if "sleep" in command[-1] else 30.0) == ("", problem)


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ((_check(ok=True, required=True), _check(ok=False, required=False)), 0),
        ((_check(ok=False, required=True),), 1),
    ],
)
def test_only_what_is_required_decides_the_exit_code(
    checks: tuple[Check, ...], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor_module, "examine", lambda: checks)
    assert main(["doctor", "--json"]) == code
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is (code == 0)
    assert [check["name"] for check in printed["checks"]] == ["thing"] * len(checks)
    assert main(["doctor"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(checks)
    assert lines[-1].endswith("seen; mend it")
    assert lines[-1].startswith("MISSING" if code else "missing")


@pytest.mark.integration
def test_the_whole_examination_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    printed = json.loads(capsys.readouterr().out)
    names = [check["name"] for check in printed["checks"]]
    assert code == (0 if printed["ok"] else 1)
    assert {"python", "disk", "torch", "py-spy", "promtool", "NVML", "ptrace permission"} <= set(names)
    assert all(check["ok"] or check["mend"] for check in printed["checks"])
