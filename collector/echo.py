"""The echo between agents: one tiny datagram of fixed size, answered with one of the same size, nothing else.

Both sides use the kernel's time of arrival, and the answer says how long the question lay with the peer: neither side's
own delays count. An answer is never answered, so that two agents cannot be set upon each other.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass

import structlog

from everstep.core.errors import ConfigError

_FORM = struct.Struct("!4s8sQ")  # kind, nonce, nanoseconds spent at the peer
SIZE = _FORM.size
NONCE_BYTES = 8
_QUESTION, _ANSWER = b"EvQ1", b"EvA1"
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python does not name it
_IP_PKTINFO = 8  # bits/in.h: address and device of arrival; sent back, they choose the answer's
_TIMESPEC = struct.Struct("qq")
_ROOM = socket.CMSG_SPACE(_TIMESPEC.size) + socket.CMSG_SPACE(64)
ANSWERS_PER_S = 2_000
"""More is no agent but a flood; the rest of it waits in the kernel and is dropped there."""
POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A datagram, where it came from, when (wall clock, ns), and the control messages that answer from its address."""

    data: bytes
    sender: tuple[object, ...] | str | None
    at_ns: int
    route: list[tuple[int, int, bytes]]


def question(nonce: bytes) -> bytes:
    return _FORM.pack(_QUESTION, nonce, 0)


def answer(data: bytes, spent_ns: int) -> bytes | None:
    """Nothing for what is no question."""
    if len(data) != SIZE:
        return None
    kind, nonce, _ = _FORM.unpack(data)
    return _FORM.pack(_ANSWER, nonce, max(spent_ns, 0)) if kind == _QUESTION else None


def read_answer(data: bytes) -> tuple[bytes, int] | None:
    """Nonce and the nanoseconds spent at the peer; nothing for what is no answer."""
    if len(data) != SIZE:
        return None
    kind, nonce, spent_ns = _FORM.unpack(data)
    return (nonce, spent_ns) if kind == _ANSWER else None


def stamp_arrivals(udp: socket.socket) -> None:
    """Ask the kernel for the time of each arrival; a kernel that refuses leaves the time of the read."""
    with contextlib.suppress(OSError):
        udp.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def receive(udp: socket.socket) -> Arrival:
    """The next datagram. Raises `TimeoutError` and `OSError` as the socket does."""
    data, control, _, sender = udp.recvmsg(SIZE + 1, _ROOM)
    at_ns = time.time_ns()
    route = []
    for level, kind, content in control:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(content) == _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack(content)
            at_ns = seconds * 1_000_000_000 + nanoseconds
        elif (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
            route.append((level, kind, content))
    return Arrival(data=data, sender=sender, at_ns=at_ns, route=route)


class EchoResponder:
    """Answers in a thread of its own from `start` to `close`."""

    def __init__(self, host: str, port: int) -> None:
        """Binds at once; port 0 takes a free one. Raises `ConfigError` when the address cannot be had."""
        self._udp = _bound(host, port)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="echo", daemon=True)
        self._window_end = 0.0
        self._num_answered = 0  # in this window of a second
        self._log = structlog.get_logger()

    @property
    def port(self) -> int:
        return int(self._udp.getsockname()[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and frees the port."""
        self._closing.set()
        if self._thread.is_alive():
            with contextlib.suppress(OSError):
                self._udp.sendto(b"", self._udp.getsockname())  # no question: wakes the thread and nothing else
            self._thread.join(2 * POLL_S)
        self._udp.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._answer(receive(self._udp))
            except TimeoutError:
                continue
            except OSError as error:  # the network is gone, or a firewall forbids: the other side counts a loss
                self._log.debug("echo_failed", error=str(error))
                self._closing.wait(POLL_S)

    def _answer(self, arrival: Arrival) -> None:
        self._hold_back()
        spent_ns = time.time_ns() - arrival.at_ns
        reply = answer(arrival.data, spent_ns)
        if reply is not None:
            self._udp.sendmsg([reply], arrival.route, 0, arrival.sender)

    def _hold_back(self) -> None:
        now = time.monotonic()
        if now >= self._window_end:
            self._window_end, self._num_answered = now + 1.0, 0
        self._num_answered += 1
        if self._num_answered > ANSWERS_PER_S:
            self._closing.wait(self._window_end - now)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        udp = socket.socket(family, socket.SOCK_DGRAM)
    except OSError as error:
        raise _no_address(host, port, error) from error
    try:
        udp.bind(address)
    except OSError as error:
        udp.close()
        raise _no_address(host, port, error) from error
    stamp_arrivals(udp)
    if family == socket.AF_INET:
        udp.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
    udp.settimeout(POLL_S)
    return udp


def _no_address(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot listen on {host} port {port}/udp ({error.strerror or error})",
        mend="correct agent.probes.echo, or end what uses the port",
    )
