"""`everstep config`: what it prints can be used as a file, and what it calls right is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.cli.main import main
from everstep.core.settings import Settings, load


def _file(folder: Path, text: str) -> Path:
    path = folder / "everstep.yaml"
    path.write_text(text)
    return path


def test_what_show_prints_is_a_file_with_the_same_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    assert load(_file(tmp_path, capsys.readouterr().out)) == Settings()


def test_show_prints_the_values_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVERSTEP_AGENT__SLOTS", "8")
    assert main(["config", "show", "--config", str(_file(tmp_path, "agent: {node: node-7}"))]) == 0
    out = capsys.readouterr().out
    assert "  node: node-7\n" in out
    assert "  slots: 8\n" in out


def test_check_says_what_a_good_file_describes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "service: {nodes: [{name: a}, {name: b, spare: true}], jobs: [{name: demo, world_size: 1}]}"
    path = _file(tmp_path, text)
    assert main(["config", "check", "-c", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: ok, 2 nodes (1 spare), 1 jobs\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("agnet: {}", "known keys here: agent, service"),
        ("service: {nodes: [{name: a}, {name: a}]}", "node 'a' is in the topology twice"),
        ("agent: {listen: {token_file: /nowhere/token}}", "cannot read token file /nowhere/token"),
        ("service: {agent_token_file: /nowhere/token}", "cannot read token file /nowhere/token"),
        ("agent: {listen: {tls_certificate: /nowhere/c, tls_key: /nowhere/k}}", "cannot use TLS files /nowhere/c and"),
        ("service: {listen: {tls_certificate: /dev/null, tls_key: /dev/null}}", "give a readable PEM certificate"),
        ("agent: {service_ca_file: /nowhere/ca.pem}", "cannot use CA file /nowhere/ca.pem"),
        ("service: {agent_ca_file: /dev/null}", "give the PEM file of the other side's certificate authority"),
    ],
)
def test_check_refuses_a_bad_file_with_one_line(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "check", "-c", str(_file(tmp_path, text))]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert problem in captured.err
