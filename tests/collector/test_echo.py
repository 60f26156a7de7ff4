from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from everstep.collector import echo
from everstep.collector.echo import SIZE, EchoResponder, answer, question, read_answer
from everstep.core.errors import ConfigError

NONCE = b"12345678"


@pytest.fixture
def responder() -> Iterator[EchoResponder]:
    one = EchoResponder("127.0.0.1", 0)
    one.start()
    yield one
    one.close()


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(30)
        yield one


def test_an_answer_is_as_long_as_the_question(responder: EchoResponder, udp: socket.socket) -> None:
    udp.sendto(question(NONCE), ("127.0.0.1", responder.port))
    data, sender = udp.recvfrom(2000)
    assert len(data) == len(question(NONCE)) == SIZE == 20
    assert sender == ("127.0.0.1", responder.port)
    found = read_answer(data)
    assert found is not None
    assert found[0] == NONCE
    assert found[1] >= 0


def test_only_questions_are_answered(responder: EchoResponder, udp: socket.socket) -> None:
    an_answer = answer(question(NONCE), 5)
    assert an_answer is not None
    for data in (b"", b"x", an_answer, question(NONCE) + b"x", question(NONCE)[:-1], b"x" * 60_000, bytes(SIZE)):
        udp.sendto(data, ("127.0.0.1", responder.port))
    udp.sendto(question(b"the last"), ("127.0.0.1", responder.port))
    assert read_answer(udp.recv(2000)) is not None
    udp.setblocking(False)  # what came before it would be here by now: one thread answers in order
    with pytest.raises(BlockingIOError):
        udp.recv(2000)


def test_a_flood_is_answered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    responder = EchoResponder("127.0.0.1", 0)
    held: list[float] = []
    monkeypatch.setattr(echo, "ANSWERS_PER_S", 3)
    monkeypatch.setattr(responder._closing, "wait", held.append)
    responder._window_end = time.monotonic() + 1000  # the second does not end in this test
    for _ in range(5):
        responder._hold_back()
    responder.close()
    assert len(held) == 2


def test_the_answer_leaves_from_the_address_that_was_asked(udp: socket.socket) -> None:
    responder = EchoResponder("0.0.0.0", 0)  # noqa: S104 - any address of this machine is the case
    responder.start()
    try:
        udp.sendto(question(NONCE), ("127.0.0.2", responder.port))
        assert udp.recvfrom(2000)[1] == ("127.0.0.2", responder.port)
    finally:
        responder.close()


def test_a_taken_port_is_one_line(responder: EchoResponder) -> None:
    with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1 port {responder.port}/udp \(Address already"):
        EchoResponder("127.0.0.1", responder.port)
    with pytest.raises(ConfigError, match=r"agent\.probes\.echo"):
        EchoResponder("host.invalid", 1)


def test_close_frees_the_port(responder: EchoResponder) -> None:
    port = responder.port
    responder.close()
    again = EchoResponder("127.0.0.1", port)
    assert again.port == port
    again.close()
