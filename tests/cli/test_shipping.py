"""`everstep rules` and `everstep dashboards` write what the package carries, and say when a folder differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from everstep.alertrules import build as rules
from everstep.cli.main import main
from everstep.dashboards import build as dashboards

BOTH = pytest.mark.parametrize(
    ("command", "expected"), [("rules", rules.files()), ("dashboards", dashboards.files())], ids=["rules", "dashboards"]
)


@BOTH
def test_what_is_written_is_what_the_tables_say(
    command: str, expected: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a" / "b"
    assert main([command, "--output", str(folder)]) == 0
    assert {path.name: path.read_text() for path in folder.iterdir()} == expected
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(str(folder / name) for name in expected)


@BOTH
def test_check_names_what_differs(
    command: str, expected: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--output", str(tmp_path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["files"]) == len(expected)
    assert main([command, "--output", str(tmp_path), "--check"]) == 0
    capsys.readouterr()
    first, second, *_ = sorted(expected)
    (tmp_path / first).write_text("edited")
    (tmp_path / second).unlink()
    assert main([command, "--output", str(tmp_path), "--check", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["stale"] == [first, second]


def test_addresses_of_the_customer_are_written_in(tmp_path: Path) -> None:
    where = ["--service-url", "https://everstep.example:9800/", "--token-file", "/etc/everstep/token of ours"]
    words = ["rules", "--output", str(tmp_path), *where, "--runbook-base", "https://docs.example/runbooks"]
    assert main(words) == 0
    assert main([*words, "--check"]) == 0
    assert main(["rules", "--output", str(tmp_path), "--check"]) == 1
    config = yaml.safe_load((tmp_path / "alertmanager.yml").read_text())
    (hook,) = config["receivers"][0]["webhook_configs"]
    assert hook["url"] == "https://everstep.example:9800/api/v1/alerts"
    assert hook["http_config"]["authorization"]["credentials_file"] == "/etc/everstep/token of ours"
    groups = yaml.safe_load((tmp_path / "hardware.yml").read_text())["groups"]
    urls = {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}
    assert all(url.startswith("https://docs.example/runbooks/") for url in urls)


@pytest.mark.parametrize("url", ["service:9800", "http://a b", "http://x\nroute: {}"])
def test_a_wrong_address_is_one_line(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--output", str(tmp_path), "--service-url", url]) == 2
    assert "is no address; give --service-url" in capsys.readouterr().err


@BOTH
def test_a_folder_that_cannot_be_written_is_one_line(
    command: str, expected: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--output", "/proc/everstep"]) == 2
    assert capsys.readouterr().err.startswith("everstep: cannot write to /proc/everstep (")


@pytest.mark.parametrize("command", ["rules", "dashboards"])
def test_neither_yaml_nor_the_grafana_sdk_is_needed(command: str, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from everstep.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print([name for name in ('yaml', 'grafana_foundation_sdk') if name in sys.modules])\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, command, "--output", str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"
