"""`everstep metrics`: the table in each form, and a Prometheus that misbehaves as one line with a mend."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from everstep.cli import prometheus as asking
from everstep.cli.main import main
from everstep.cli.metrics import HEAD
from everstep.core.metrics import METRICS

Answer = Callable[[BaseHTTPRequestHandler], tuple[int, bytes]]


class Fake(ThreadingHTTPServer):
    """Answers as `answer` says; counts what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: Answer = lambda _: (200, vector())
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        fake = self.server
        assert isinstance(fake, Fake)
        fake.asked += 1
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        status, body = fake.answer(self)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):  # whoever asked has gone
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Quiet."""


def vector(*results: dict[str, Any]) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": list(results)}}).encode()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(asking, "WAITS_S", (0.0, 0.0))
    server = Fake()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


def _fails(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["metrics", "check", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("everstep: ")


def test_a_pipe_gets_tab_separated_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "list"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert tuple(rows[0]) == HEAD
    assert [row[0] for row in rows[1:28]] == [str(number) for number in range(1, 28)]
    assert [row[1] for row in rows[1:]] == [metric.name for metric in METRICS]
    assert all(len(row) == len(HEAD) for row in rows)


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["metrics", "list"]) == 0
    out = capsys.readouterr().out
    assert "━" in out
    assert "everstep_cluster_gpus" in out


def test_json_holds_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["metrics"]
    assert len(rows) == len(METRICS)
    assert rows[0]["labels"]["sensor"] == ["core", "memory"]
    assert rows[0]["gate"]["low"] == 1
    assert rows[9]["faults"][0] == "F23"


def test_an_empty_prometheus_has_nothing(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "check", "--prometheus", fake.url]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "0 of 27 are there (27 missing)"
    assert fake.asked == 1


def test_one_that_is_busy_is_asked_again_and_then_given_up(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answer = lambda _: (503, b"") if fake.asked < 3 else (200, vector())
    assert main(["metrics", "check", "--prometheus", fake.url]) == 1
    assert fake.asked == 3
    capsys.readouterr()
    fake.asked = 0
    fake.answer = lambda _: (500, b"oops")
    line = _fails(["--prometheus", fake.url], capsys)
    assert line.startswith(f"{fake.url} does not answer (HTTP 500); ")
    assert fake.asked == 3


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"", "refuses us (HTTP 401); give its token with --token-file"),
        (200, b"<html>hello</html>", "is not a Prometheus"),
        (200, b"[]", "is not a Prometheus"),
        (404, b"not found", "is not a Prometheus (HTTP 404 without its JSON)"),
        (302, b"", "is not a Prometheus"),
        (200, b'{"status":"success","data":{"result":[{"metric":{},"value":["x"]}]}}', "is not a Prometheus"),
        (422, b'{"status":"error","error":"too many samples"}', "refuses the query (too many samples)"),
    ],
)
def test_what_is_no_answer_is_one_line(
    status: int, body: bytes, said: str, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answer = lambda _: (status, body)
    assert said in _fails(["--prometheus", fake.url], capsys)
    assert fake.asked == 1


def test_one_that_is_slow_is_given_up(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    def late(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        time.sleep(1.0)
        return 200, vector()

    fake.answer = late
    assert "does not answer (timed out)" in _fails(["--prometheus", fake.url, "--timeout", "0.1"], capsys)


def test_an_answer_without_end_is_cut_off(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asking, "MOST_BYTES", 1000)
    fake.answer = lambda _: (200, b" " * 100_000)
    assert "more than 1000 bytes" in _fails(["--prometheus", fake.url], capsys)


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://x", "", "http://"])
def test_a_wrong_address_is_one_line(url: str, fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert "; " in _fails(["--prometheus", url], capsys)


def test_nobody_there_is_one_line(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert "does not answer" in _fails(["--prometheus", "http://127.0.0.1:1"], capsys)


def test_the_token_is_sent_and_its_file_must_exist(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("secret\n")

    def guarded(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        return (200, vector()) if request.headers["Authorization"] == "Bearer secret" else (401, b"")

    fake.answer = guarded
    assert main(["metrics", "check", "--prometheus", fake.url, "--token-file", str(tmp_path / "token")]) == 1
    capsys.readouterr()
    assert "cannot read token file" in _fails(["--prometheus", fake.url, "--token-file", "/nowhere"], capsys)
    assert "cannot use CA file" in _fails(["--prometheus", fake.url, "--ca-file", "/nowhere"], capsys)
