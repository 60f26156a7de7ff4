from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from everstep.collector import probes
from everstep.collector.echo import question, read_answer
from everstep.collector.probes import echo_answered, network_sources, queue_sources, storage_folders, storage_sources
from everstep.collector.sources import watched_sources
from everstep.core.clock import SteadyClock
from everstep.core.errors import ConfigError
from everstep.core.settings import AgentSettings

PEER = {"address": "192.0.2.1", "rack": "r1", "rail": "0"}


def _settings(**sections: object) -> AgentSettings:
    return AgentSettings.model_validate(sections)


def _job(name: str, folder: Path | None) -> dict[str, object]:
    return {"name": name, "program": ["train.py"], "checkpoint_dir": folder}


def test_storage_is_what_is_listed_and_the_checkpoint_folders_each_once(tmp_path: Path) -> None:
    settings = _settings(
        jobs=[_job("a", tmp_path / "a"), _job("b", tmp_path / "shared"), _job("c", None), _job("d", tmp_path / "a")],
        probes={"storage": [{"name": "lustre", "path": tmp_path / "shared"}]},
    )
    assert [(one.target, one.path, one.required) for one in storage_folders(settings)] == [
        ("lustre", tmp_path / "shared", True),
        (str(tmp_path / "a"), tmp_path / "a", False),
    ]


def test_without_configuration_nothing_is_tried_out() -> None:
    settings, clock = AgentSettings(), SteadyClock()
    assert [one.name for one in watched_sources(settings, clock)] == [
        "host",
        "infiniband",
        "mounts",
        "link_rates",
        "fans",
        "clock",
    ]
    assert list(storage_sources(settings, clock)) == []
    assert list(network_sources(settings, clock)) == []
    assert list(queue_sources(settings, clock)) == []


def test_all_that_can_be_configured(tmp_path: Path) -> None:
    settings = _settings(probes={"storage": [{"name": "t", "path": tmp_path}], "peers": [PEER], "slurm": True})
    names = [one.name for one in watched_sources(settings, SteadyClock())][6:]
    assert names == ["storage_probe", "filesystems", "storage_probe", "network_probe", "scheduler"]


def test_what_a_probe_measured_comes_out_of_the_reader_that_never_waits(tmp_path: Path) -> None:
    settings = _settings(probes={"storage": [{"name": "t", "path": tmp_path}]})
    probe, space, latency = storage_sources(settings, SteadyClock())
    assert probe.sample_once() == ()
    assert {one.metric for one in space.sample_once()} == {"everstep_filesystem_available_ratio"}
    counts = [one.value for one in latency.sample_once() if one.suffix == "_count"]
    assert counts == [1, 1, 1]


def test_one_folder_that_hangs_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    statvfs = os.statvfs

    def hang(path: Path) -> os.statvfs_result:
        if path.name == "bad":
            released.wait(30)
        return statvfs(tmp_path)

    monkeypatch.setattr(os, "statvfs", hang)
    storage = [{"name": name, "path": tmp_path / name} for name in ("bad", "good")]
    settings = _settings(probes={"storage": storage, "storage_timeout_s": 0.2})
    bad, good = (one for one in storage_sources(settings, SteadyClock()) if one.name == "filesystems")
    bad.begin_once()
    assert {one.labels[0][1] for one in good.sample_once()} == {"good"}
    bad.wait_once()
    assert bad.collect() == ()
    assert (bad.num_timeouts, good.num_timeouts) == (1, 0)
    released.set()


def test_one_folder_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    settings = _settings(
        probes={"storage": [{"name": "bad", "path": tmp_path / "bad"}, {"name": "good", "path": tmp_path / "good"}]}
    )
    sources = list(storage_sources(settings, SteadyClock()))
    ratios = [one.labels[0][1] for source in sources for one in source.sample_once() if "ratio" in one.metric]
    assert set(ratios) == {"good"}
    assert [source.num_errors for source in sources] == [1, 1, 0, 0, 0]


def test_the_echo_is_on_the_number_of_the_agents_own_port() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = _settings(listen={"port": port}, probes={"echo": {}})
    with echo_answered(settings), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(30)
        udp.sendto(question(b"12345678"), ("127.0.0.1", port))
        assert read_answer(udp.recv(100)) is not None
        with pytest.raises(ConfigError, match=r"agent\.probes\.echo"), echo_answered(settings):
            pass


def test_no_echo_unless_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "EchoResponder", None)
    with echo_answered(AgentSettings()):
        pass


def test_an_agent_is_no_peer_of_its_own() -> None:
    own = {**PEER, "address": "127.0.0.1", "port": 9810}
    assert list(network_sources(_settings(probes={"echo": {}, "peers": [own]}), SteadyClock())) == []
    assert len(list(network_sources(_settings(probes={"peers": [own]}), SteadyClock()))) == 1


@pytest.mark.parametrize(
    "section",
    [
        {"peers": [{**PEER, "address": "node-1"}]},
        {"peers": [{**PEER, "rack": "a rack"}]},
        {"peers": [{**PEER, "port": 0}]},
        {"storage": [{"name": "t", "path": "/a"}, {"name": "t", "path": "/b"}]},
        {"storage": [{"name": "", "path": "/a"}]},
        {"storage_interval_s": 0},
        {"peers_per_round": 0},
        {"surprise": True},
    ],
)
def test_settings_that_make_no_sense_are_refused(section: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="probes"):
        _settings(probes=section)
