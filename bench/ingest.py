"""What the push door costs: 27 series a GPU once a second, as the node agents send them, from wire bytes to windows.

Each push is one node's: 8 GPUs and their ranks, snappy and protobuf. Measured is what the route does with a body:
decompress, decode, resolve, gate, fence, keep, and hand to the job views. The rival decodes the same bodies with
Google's protobuf runtime (C) and keeps the samples in a dictionary by label set, without any gate.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from starlette.requests import Request

from everstep.bench.harness import BenchResult, Label, arguments, finish, provenance
from everstep.core.clock import ManualClock
from everstep.core.remote_write import HEADERS, compress, decompress, encode_labels, encode_samples
from everstep.service.access import Access
from everstep.service.ingest import Ingest
from everstep.service.self_metrics import SelfMetrics
from everstep.service.window_store import WindowStore

GPUS_PER_NODE = 8
START = 1_800_000_000.0
MAX_BYTES = 64 * 2**20
JOB = "bench"
SIZES = {1_024: 0.10, 16_384: 1.0}
"""GPUs, and the share of one core that their series may take."""

PER_GPU: tuple[tuple[str, dict[str, str], float], ...] = (
    ("everstep_gpu_temperature_celsius", {"sensor": "core"}, 61.0),
    ("everstep_gpu_temperature_celsius", {"sensor": "memory"}, 74.0),
    ("everstep_gpu_power_watts", {}, 612.0),
    ("everstep_gpu_power_limit_watts", {}, 700.0),
    ("everstep_gpu_memory_used_bytes", {}, 7.1e10),
    ("everstep_gpu_memory_total_bytes", {}, 8.5e10),
    ("everstep_gpu_utilization_ratio", {"engine": "sm"}, 0.97),
    ("everstep_gpu_sm_clock_hertz", {}, 1.7e9),
    ("everstep_gpu_up", {}, 1.0),
    ("everstep_gpu_ecc_errors_total", {"type": "corrected"}, 3.0),
    ("everstep_gpu_ecc_errors_total", {"type": "uncorrected"}, 0.0),
    ("everstep_gpu_nvlink_errors_total", {"kind": "replay"}, 12.0),
    ("everstep_gpu_nvlink_errors_total", {"kind": "crc_flit"}, 0.0),
    ("everstep_gpu_pcie_replays_total", {}, 5.0),
    ("everstep_gpu_xid_errors_total", {"xid": "79"}, 0.0),
    ("everstep_gpu_throttled_seconds_total", {"reason": "power"}, 40.0),
    ("everstep_gpu_throttled_seconds_total", {"reason": "thermal"}, 0.0),
    ("everstep_gpu_row_remap_state", {"state": "pending"}, 0.0),
)
PER_RANK: tuple[tuple[str, dict[str, str], float], ...] = (
    ("everstep_train_attempt", {}, 1.0),
    ("everstep_train_steps_total", {}, 0.0),
    ("everstep_train_step_compute_seconds", {}, 0.8),
    ("everstep_train_nonfinite_steps_total", {}, 0.0),
    ("everstep_train_last_step_timestamp_seconds", {}, START),
    ("everstep_train_phase_seconds_total", {"phase": "forward"}, 0.0),
    ("everstep_train_phase_seconds_total", {"phase": "backward"}, 0.0),
    ("everstep_train_phase_seconds_total", {"phase": "collective"}, 0.0),
    ("everstep_worker_state", {"state": "running"}, 1.0),
)
PER_GPU_SERIES = len(PER_GPU) + len(PER_RANK)
STEADY = frozenset(
    {"everstep_train_attempt", "everstep_worker_state", "everstep_gpu_up", "everstep_gpu_row_remap_state"}
)
BY_TIME = frozenset({"everstep_train_steps_total", "everstep_train_last_step_timestamp_seconds"})


class Push:
    """One node's body for any second: the bytes are laid out once, times and values are put into their places."""

    def __init__(self, node: int, rng: random.Random) -> None:
        raw = bytearray()
        places: list[int] = []
        self._base: list[float] = []
        self._slope: list[float] = []
        for name, labels, value in self._series(node):
            content = encode_labels(labels) + encode_samples([(START, value)])
            raw += b"\x0a" + _varint(len(content)) + content
            places.append(len(raw) - 18)
            self._base.append(value)
            moves = 0.0 if name in STEADY else 1.0 if name in BY_TIME else 1e-4 * rng.random()
            self._slope.append(moves)
        self._raw = np.frombuffer(bytes(raw), dtype=np.uint8).copy()
        self._values = np.array(places)[:, None] + np.arange(3, 11)
        self._times = np.array(places)[:, None] + np.arange(12, 18)
        self.num_series = len(places)

    def body(self, second: int) -> bytes:
        values = np.array(self._base) + np.array(self._slope) * second
        self._raw[self._values] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
        self._raw[self._times] = np.frombuffer(encode_samples([(START + second, 0.0)])[-6:], dtype=np.uint8)
        return compress(self._raw.tobytes())

    @staticmethod
    def _series(node: int) -> Iterator[tuple[str, Iterable[tuple[str, str]], float]]:
        target = {"cluster": "bench", "node": f"node-{node}", "rack": f"rack-{node // 8}"}
        for local in range(GPUS_PER_NODE):
            rank = GPUS_PER_NODE * node + local
            gpu = {**target, "gpu": str(local), "uuid": f"GPU-{rank:08x}-5b3e-4c1d-9f00-{rank:012x}"}
            mine = {**target, "train_job": JOB, "rank": str(rank)}
            for rows, own in ((PER_GPU, gpu), (PER_RANK, mine)):
                for name, more, value in rows:
                    yield name, sorted({**own, **more, "__name__": name}.items()), value


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU seconds of this process for one second of pushes; bytes of resident memory."""

    gpus: int
    num_series: int
    share: float
    worst_share: float
    first_us: float
    bytes_per_series: float
    bytes_per_sample: float

    @property
    def samples_per_core_s(self) -> float:
        return self.num_series / self.share


def measure(pushes: Sequence[Push], *, seconds: int) -> Cost:
    store = WindowStore(window_s=600, max_series=10**6, current_attempt=lambda _: 1)
    num_series = sum(push.num_series for push in pushes)
    before = _resident()
    first = _second(pushes, 0, store)
    held = _resident()
    shares = [_second(pushes, second, store) for second in range(1, seconds + 1)]
    after = _resident()
    taken = store.num_accepted
    if taken != num_series * (seconds + 1):
        raise RuntimeError(f"{taken} of {num_series * (seconds + 1)} samples were taken: {store.rejected()}")
    return Cost(
        gpus=len(pushes) * GPUS_PER_NODE,
        num_series=num_series,
        share=median(shares),
        worst_share=max(shares),
        first_us=first / num_series * 1e6,
        bytes_per_series=(held - before) / num_series,
        bytes_per_sample=(after - held) / (num_series * seconds),
    )


def _second(pushes: Sequence[Push], second: int, store: WindowStore) -> float:
    """CPU seconds; the bodies are made before the clock starts, a thousand at a time."""
    spent = 0.0
    for start in range(0, len(pushes), 1000):
        bodies = [push.body(second) for push in pushes[start : start + 1000]]
        began = time.process_time()
        for body in bodies:
            store.apply(decompress(body, max_bytes=MAX_BYTES), arrived=START + second)
        spent += time.process_time() - began
    return spent


def http_us(push: Push, *, seconds: int) -> float:
    """CPU microseconds of the whole route for one push, less the ingest itself: guard, headers, body, answer."""
    store = WindowStore(window_s=600, max_series=10**6, current_attempt=lambda _: 1)
    clock = ManualClock(START)
    limits = {"max_body_bytes": MAX_BYTES, "max_decoded_bytes": MAX_BYTES}
    ingest = Ingest(store, Access("token"), SelfMetrics(), clock, **limits, on_push=lambda: None)
    headers = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [*headers, (b"authorization", b"Bearer token")]}

    def request(body: bytes) -> Request:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        return Request(scope, receive)

    async def all_of_them() -> list[float]:
        bare = WindowStore(window_s=600, max_series=10**6, current_attempt=lambda _: 1)
        more = []
        for second in range(1, seconds + 1):
            clock.advance(1.0)
            body = push.body(second)
            without = _second([push], second, bare)
            began = time.process_time()
            answer = await ingest.write(request(body))
            more.append(time.process_time() - began - without)
            if answer.status_code != 204:
                raise RuntimeError(f"a push was answered with {answer.status_code}")
        return more

    return max(0.0, median(asyncio.run(all_of_them()))) * 1e6


def rival(pushes: Sequence[Push], *, seconds: int) -> float:
    """Share of a core of the protobuf runtime with a dictionary of lists."""
    request = _write_request()
    kept: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}

    def take(raw: bytes) -> None:
        for one in request.FromString(raw).timeseries:
            key = tuple([(label.name, label.value) for label in one.labels])
            rows = kept.setdefault(key, [])
            for sample in one.samples:
                rows.append((sample.timestamp / 1000, sample.value))

    return _median_share(pushes, take, seconds=seconds)


def _median_share(pushes: Sequence[Push], take: Callable[[bytes], None], *, seconds: int) -> float:
    shares = []
    for second in range(seconds + 1):
        bodies = [push.body(second) for push in pushes]
        began = time.process_time()
        for body in bodies:
            take(decompress(body, max_bytes=MAX_BYTES))
        shares.append(time.process_time() - began)
    return median(shares[1:])


def _write_request() -> Any:
    """The class of prometheus.WriteRequest (field numbers of prompb/types.proto)."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="everstep_bench_remote.proto", package="prometheus", syntax="proto3")
    scalars = {"string": field.TYPE_STRING, "double": field.TYPE_DOUBLE, "int64": field.TYPE_INT64}
    for message, fields in {
        "Label": [("name", 1, "string"), ("value", 2, "string")],
        "Sample": [("value", 1, "double"), ("timestamp", 2, "int64")],
        "TimeSeries": [("labels", 1, "Label"), ("samples", 2, "Sample")],
        "WriteRequest": [("timeseries", 1, "TimeSeries")],
    }.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            added = described.field.add(name=name, number=number)
            if kind in scalars:
                added.type, added.label = scalars[kind], field.LABEL_OPTIONAL
            else:
                added.type, added.label = field.TYPE_MESSAGE, field.LABEL_REPEATED
                added.type_name = f".prometheus.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("prometheus.WriteRequest"))


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def page(costs: Sequence[Cost], rivals: Mapping[int, float], route_us: float, command: str) -> str:
    lines = [
        "# Ingest\n",
        f"{PER_GPU_SERIES} series a GPU, one sample each second, one push a node of {GPUS_PER_NODE} GPUs. Real code on",
        "this machine; CPU time of the ingest stage, median of the seconds after the first.\n",
        "| GPUs | series a second | share of a core | worst second | goal | samples per core-second |"
        " protobuf runtime | first sight of a series | memory a series | memory a further sample |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in costs:
        theirs = f"{rivals[one.gpus]:.1%}" if one.gpus in rivals else "not run"
        lines.append(
            f"| {one.gpus:,} | {one.num_series:,} | {one.share:.1%} | {one.worst_share:.1%} | {SIZES[one.gpus]:.0%}"
            f" | {one.samples_per_core_s:,.0f} | {theirs} | {one.first_us:.0f} µs | {one.bytes_per_series:,.0f} B"
            f" | {one.bytes_per_sample:.0f} B |"
        )
    lines += [
        "",
        f"The route around it (guard, headers, body, answer; without the socket) takes {route_us:.0f} µs a push.",
        "A further sample costs 16 B in its ring; the rest is what the job views keep of each step.\n",
        provenance(command),
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    options: argparse.Namespace = arguments("ingest", "Cost of the push door, beside the protobuf runtime.").parse_args(
        argv
    )
    seconds = 60 if options.full else 5
    rng = random.Random(options.seed)
    costs, rivals = [], {}
    for gpus in SIZES:
        print(f"{gpus} GPUs: laying out the pushes", flush=True)
        pushes = [Push(node, rng) for node in range(gpus // GPUS_PER_NODE)]
        cost = measure(pushes, seconds=seconds)
        print(f"{gpus} GPUs: {cost.share:.1%} of a core, first sight {cost.first_us:.0f} µs a series", flush=True)
        costs.append(cost)
        if options.full or gpus == min(SIZES):
            rivals[gpus] = rival(pushes, seconds=3)
            print(f"{gpus} GPUs: {rivals[gpus]:.1%} with the protobuf runtime", flush=True)
    route_us = http_us(Push(0, rng), seconds=200)
    met = {f"{one.num_series} series a second": one.share < SIZES[one.gpus] for one in costs}
    result = BenchResult(
        bench="ingest",
        ok=all(met.values()),
        label=Label.REAL,
        seed=options.seed,
        measures={
            f"{one.num_series} series a second": {
                "core_share": round(one.share, 4),
                "worst_share": round(one.worst_share, 4),
                "samples_per_core_s": round(one.samples_per_core_s),
                "first_us": round(one.first_us, 1),
                "bytes_per_series": round(one.bytes_per_series),
                "bytes_per_sample": round(one.bytes_per_sample, 1),
            }
            for one in costs
        }
        | {"route_us_per_push": round(route_us, 1)},
        goals={name: "met" if good else "missed" for name, good in met.items()},
        rivals={f"protobuf runtime, {gpus} GPUs": {"core_share": round(share, 4)} for gpus, share in rivals.items()},
    )
    size = "--full" if options.full else "--quick"
    return finish(
        result, page(costs, rivals, route_us, f"python -m everstep.bench.ingest {size} --seed {options.seed}")
    )


if __name__ == "__main__":
    sys.exit(main())
