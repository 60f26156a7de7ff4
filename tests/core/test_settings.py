"""Configuration: works with no file, and every error is one line that names the key and the mend."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from everstep.core.errors import ConfigError
from everstep.core.settings import Endpoint, Settings, load, read_token


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERSTEP_AGENT__NODE", raising=False)


def _file(folder: Path, text: str) -> Path:
    path = folder / "everstep.yaml"
    path.write_text(text)
    return path


def test_no_file_gives_defaults_bound_to_loopback() -> None:
    settings = load(None)
    assert settings == Settings()
    assert (settings.service.listen.host, settings.service.listen.port) == ("127.0.0.1", 9800)
    assert (settings.agent.listen.host, settings.agent.listen.port) == ("127.0.0.1", 9810)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}\n"])
def test_an_empty_file_gives_defaults(tmp_path: Path, text: str) -> None:
    assert load(_file(tmp_path, text)) == Settings()


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    settings = load(_file(tmp_path, "agent:\n  node: node-7\n  slots: 8\nservice:\n  detector: {peer_ratio: 1.5}\n"))
    assert (settings.agent.node, settings.agent.slots) == ("node-7", 8)
    assert settings.service.detector.peer_ratio == 1.5
    assert settings.service.recovery == Settings().service.recovery


def test_the_environment_wins_over_the_file_and_leaves_its_other_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_AGENT__NODE", "node-env")
    monkeypatch.setenv("EVERSTEP_SERVICE__DETECTOR__PEER_RATIO", "1.75")
    settings = load(_file(tmp_path, "agent: {node: node-file, slots: 4}\nservice: {window_s: 60}\n"))
    assert (settings.agent.node, settings.agent.slots) == ("node-env", 4)
    assert (settings.service.detector.peer_ratio, settings.service.window_s) == (1.75, 60)


@pytest.mark.parametrize(
    ("text", "named", "mend"),
    [
        ("agnet: {}", "agnet", "known keys here: agent, service"),
        ("agent: {nod: a}", "agent.nod", "known keys here: cluster, "),
        ("service: {detector: {ratio: 2}}", "service.detector.ratio", "peer_ratio"),
        ("service: {nodes: [{name: a, gpu: 1}]}", "service.nodes.0.gpu", "known keys here: agent_url, gpus"),
        ("agent: {jobs: [{name: demo, program: [x.py], cmd: y}]}", "agent.jobs.0.cmd", "keys here: checkpoint_dir"),
        ("agent: {slots: 0}", "agent.slots", "config show"),
        ("agent: {slots: many}", "agent.slots", "config show"),
        ("agent: {push_interval_s: -1}", "agent.push_interval_s", "config show"),
        ("service: {listen: {port: 70000}}", "service.listen.port", "config show"),
        ("service: {jobs: [{name: demo}]}", "service.jobs.0.world_size", "config show"),
        ("agent: {jobs: [{name: demo, program: []}]}", "agent.jobs.0.program", "config show"),
        ("agent: 5", "agent", "config show"),
        ("service: {listen: {tls_key: /k}}", "tls_certificate and tls_key go together", "config show"),
        ("service: {jobs: [{name: a, world_size: 1}, {name: a, world_size: 2}]}", "job 'a' stands in the list", ""),
        ("agent: {jobs: [{name: a, program: [x]}, {name: a, program: [y]}]}", "job 'a' stands in the list twice", ""),
        ("agent: {jobs: [{name: ../a, program: [x]}]}", "agent.jobs.0.name", "config show"),
        ("agent: {node: a/b}", "agent.node", "config show"),
        ("- a list", "must hold a mapping", "start it with 'agent:' or 'service:'"),
        ("just text", "must hold a mapping", "start it with 'agent:' or 'service:'"),
        ("agent: {node: [}", "line 1 is not valid YAML", "correct the syntax there"),
        ("agent:\n  node: a\n bad: b\n", "is not valid YAML", "correct the syntax there"),
        ("1: 2", "1", "known keys here: agent, service"),
    ],
)  # fmt: skip
def test_every_mistake_is_one_line_that_names_file_key_and_mend(
    tmp_path: Path, text: str, named: str, mend: str
) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    assert named in line
    assert mend in line


def test_a_value_that_needs_several_keys_at_once_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"service\.listen: .*give both or none"):
        load(_file(tmp_path, "service: {listen: {tls_certificate: /c}}"))
    with pytest.raises(ValidationError):
        Endpoint(tls_key=Path("/k"))


def test_a_wrong_environment_value_names_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_AGENT__SLOTS", "many")
    with pytest.raises(ConfigError, match=r"the environment: agent\.slots") as caught:
        load(None)
    assert "\n" not in str(caught.value)


def test_an_environment_value_that_is_not_json_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_AGENT__JOBS", "not json")
    with pytest.raises(
        ConfigError, match=r"EVERSTEP_.*agent.*; lists and mappings in the environment are written as JSON"
    ) as caught:
        load(None)
    assert "\n" not in str(caught.value)


def test_a_missing_an_unreadable_and_a_binary_file_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read configuration .*none.yaml \(No such file or directory\)"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"\(Is a directory\); check the path"):
        load(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00agent")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        load(binary)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 3 holds the key 'node' twice; keep one of them") as caught:
        load(_file(tmp_path, "agent:\n  node: a\n  node: b\n"))
    assert "\n" not in str(caught.value)


def test_a_node_that_stands_twice_is_refused(tmp_path: Path) -> None:
    settings = load(_file(tmp_path, "service: {nodes: [{name: a}, {name: a}]}"))
    with pytest.raises(ConfigError, match="node 'a' is in the topology twice; give each node its own name"):
        settings.service.topology()


def test_the_topology_carries_every_key_of_a_node(tmp_path: Path) -> None:
    text = "service: {nodes: [{name: a, agent_url: 'http://a:1', rack: r, leaf: l, slots: 2, gpus: 8, spare: true}]}"
    node = load(_file(tmp_path, text)).service.topology().nodes["a"]
    assert (node.agent_url, node.rack, node.leaf, node.slots, node.gpus, node.spare) == (
        "http://a:1", "r", "l", 2, 8, True,
    )  # fmt: skip


def test_settings_cannot_be_changed_after_loading() -> None:
    with pytest.raises(ValidationError):
        load(None).agent.slots = 3


def test_a_token_is_read_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" s3cret\n")
    assert read_token(tmp_path / "token") == "s3cret"
    assert read_token(None) is None


def test_a_token_file_that_is_missing_empty_or_binary_names_the_mend(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is empty; write a random token into it"):
        read_token(tmp_path / "empty")
    for name in ("none", "binary"):
        with pytest.raises(ConfigError, match=f"cannot read token file .*{name}; check the path"):
            read_token(tmp_path / name)
