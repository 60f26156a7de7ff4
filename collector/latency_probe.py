"""Round trips to other agents by rack and rail, over the echo of `echo.py`; an answer that does not come is a loss.

A node keeps to a few pairs of rack and rail, drawn once by its name and spread over the rails, and asks one peer of
each a round: a thousand nodes together cover everything with a few datagrams each, not with a million.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from everstep.collector.echo import NONCE_BYTES, question, read_answer, receive, stamp_arrivals
from everstep.collector.histogram import Histogram
from everstep.collector.samples import Sample

METRIC = "everstep_net_latency_seconds"
LOST_AFTER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An agent's echo; `address` is a number, not a name."""

    address: str
    port: int
    rack: str
    rail: str

    @property
    def pair(self) -> tuple[str, str]:
        return self.rack, self.rail


class LatencyProbe:
    """One round a `collect`, which blocks for `LOST_AFTER_S` at most."""

    def __init__(self, peers: Sequence[Peer], node: str, num_pairs: int) -> None:
        self._random = random.Random(node)  # noqa: S311 - a choice of peers, no secret
        by_pair: dict[tuple[str, str], list[Peer]] = {}
        for peer in peers:
            by_pair.setdefault(peer.pair, []).append(peer)
        self._peers = {pair: by_pair[pair] for pair in _drawn_pairs(by_pair, num_pairs, self._random)}
        self._histograms = {
            (rack, rail): Histogram(METRIC, (("peer_rack", rack), ("probe_rail", rail))) for rack, rail in self._peers
        }

    def collect(self) -> Iterable[Sample]:
        """All histograms after one more round."""
        asked = [self._random.choice(peers) for peers in self._peers.values()]
        for family in (socket.AF_INET, socket.AF_INET6):
            of_family = [peer for peer in asked if (":" in peer.address) is (family == socket.AF_INET6)]
            if of_family:
                self._round(family, of_family)
        return [sample for histogram in self._histograms.values() for sample in histogram.samples()]

    def _round(self, family: socket.AddressFamily, peers: Sequence[Peer]) -> None:
        with socket.socket(family, socket.SOCK_DGRAM) as udp:
            stamp_arrivals(udp)
            waiting = dict(_asked(udp, peers))
            for pair, round_trip_s in _answers(udp, waiting):
                self._histograms[pair].observe(round_trip_s)
            for peer, _ in waiting.values():
                self._histograms[peer.pair].lose(LOST_AFTER_S)


_Waiting = tuple[Peer, int]  # who was asked, and when by the wall clock in ns: so does the kernel stamp arrivals


def _asked(udp: socket.socket, peers: Sequence[Peer]) -> Iterator[tuple[bytes, _Waiting]]:
    for peer in peers:
        nonce = os.urandom(NONCE_BYTES)
        sent_ns = time.time_ns()
        with contextlib.suppress(OSError):  # no route to the peer is a loss like another
            udp.sendto(question(nonce), (peer.address, peer.port))
        yield nonce, (peer, sent_ns)


def _answers(udp: socket.socket, waiting: dict[bytes, _Waiting]) -> Iterator[tuple[tuple[str, str], float]]:
    """Pair and round trip of each answer in time; takes those out of `waiting`."""
    deadline = time.monotonic() + LOST_AFTER_S
    while waiting and (left_s := deadline - time.monotonic()) > 0:
        udp.settimeout(left_s)
        try:
            arrival = receive(udp)
        except TimeoutError:
            return
        except OSError:
            continue  # an error of one datagram that the network reported
        found = read_answer(arrival.data)
        if found is not None and found[0] in waiting:
            peer, sent_ns = waiting.pop(found[0])
            yield peer.pair, (arrival.at_ns - sent_ns - found[1]) / 1e9


def _drawn_pairs(pairs: Iterable[tuple[str, str]], num_pairs: int, source: random.Random) -> list[tuple[str, str]]:
    """Rails take turns, each with its racks in a random order."""
    by_rail: dict[str, list[tuple[str, str]]] = {}
    for pair in sorted(pairs):
        by_rail.setdefault(pair[1], []).append(pair)
    for of_rail in by_rail.values():
        source.shuffle(of_rail)
    turns = chain.from_iterable(zip_longest(*by_rail.values()))
    return [pair for pair in turns if pair is not None][:num_pairs]


def without_self(peers: Sequence[Peer], own_port: int) -> list[Peer]:
    """All but this agent's own echo: the list is the same on every node of a cluster."""
    return [peer for peer in peers if peer.port != own_port or not _is_local(peer.address)]


def _is_local(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        try:
            udp.bind((address, 0))
        except OSError:
            return False
    return True
