from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import pytest
import structlog
from structlog.testing import capture_logs

from everstep.collector.encoding import BatchEncoder, merge
from everstep.collector.push import Pusher, PushTarget
from everstep.collector.push_buffer import PushBuffer
from everstep.collector.samples import Sample
from everstep.core.clock import ManualClock
from everstep.core.remote_write import decode, decode_labels, decompress, is_stale

LABELS = (("train_job", "demo"), ("rank", "1"))
TARGET = {"cluster": "c", "node": "node-1", "rack": "r"}


def steps(value: float, points: tuple[tuple[float, float], ...] | None = None) -> Sample:
    return Sample(metric="everstep_train_steps_total", labels=LABELS, value=value, points=points)


def opened(body: bytes) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    return [(decode_labels(block), points) for block, points in decode(decompress(body, max_bytes=1 << 20))]


class Service:
    """Answers with `status`; None means that nobody listens."""

    def __init__(self, status: int | None = 204, problem: httpx.HTTPError | None = None) -> None:
        self.status = status
        self.problem = problem if problem is not None else httpx.ConnectError("All connection attempts failed")
        self.bodies: list[bytes] = []
        self.most = 1 << 20

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.status is None:
            raise self.problem
        if len(request.content) > self.most:
            return httpx.Response(413)
        if self.status < 300:
            self.bodies.append(request.content)
        return httpx.Response(self.status)

    def values(self) -> list[float]:
        return [value for body in self.bodies for _, points in opened(body) for _, value in points]


def pusher_for(
    service: Service, gather: Callable[[], Iterable[Sample]], *, max_samples: int = 1000, token_file: Path | None = None
) -> tuple[Pusher, ManualClock]:
    clock = ManualClock(1000.0)
    target = PushTarget(service_url="http://service", token="t", token_file=token_file, ca_file=None, timeout_s=1.0)
    pusher = Pusher(target, BatchEncoder(TARGET), PushBuffer(max_samples), gather, clock, 1.0)
    pusher._client = httpx.AsyncClient(base_url="http://service", transport=httpx.MockTransport(service))
    return pusher, clock


def counting() -> Callable[[], Iterable[Sample]]:
    count = iter(range(1, 10_000))
    return lambda: [steps(float(next(count)))]


def push(pusher: Pusher, clock: ManualClock, times: int) -> None:
    async def all_of_them() -> None:
        for _ in range(times):
            await pusher.push()
            clock.advance(1.0)

    asyncio.run(all_of_them())


def test_a_series_carries_the_target_labels_and_its_own() -> None:
    batch = BatchEncoder(TARGET).encode([steps(3.0)], 1000.0)
    ((labels, points),) = opened(batch.body)
    assert labels == {"__name__": "everstep_train_steps_total", **TARGET, **dict(LABELS)}
    assert points == [(1000.0, 3.0)]
    assert batch.num_samples == 1


def test_points_keep_their_own_times_and_an_empty_tuple_keeps_the_series_alive() -> None:
    encoder = BatchEncoder(TARGET)
    first = encoder.encode([steps(2.0, ((990.0, 1.0), (990.5, 2.0)))], 1000.0)
    assert opened(first.body)[0][1] == [(990.0, 1.0), (990.5, 2.0)]
    assert encoder.encode([steps(2.0, ())], 1001.0).num_samples == 0


def test_a_series_that_vanishes_is_marked_stale_once() -> None:
    encoder = BatchEncoder(TARGET)
    encoder.encode([steps(1.0)], 1000.0)
    ((labels, ((at, value),)),) = opened(encoder.encode([], 1001.0).body)
    assert labels["rank"] == "1"
    assert at == 1001.0
    assert is_stale(value)
    assert encoder.encode([], 1002.0).num_samples == 0


def test_merged_batches_hold_everything_in_order() -> None:
    encoder = BatchEncoder(TARGET)
    merged = merge([encoder.encode([steps(float(n))], 1000.0 + n) for n in range(3)])
    assert merged.num_samples == 3
    assert [points[0] for _, points in opened(merged.body)] == [(1000.0, 0.0), (1001.0, 1.0), (1002.0, 2.0)]


def test_the_buffer_drops_the_oldest_and_counts_them() -> None:
    encoder = BatchEncoder(TARGET)
    buffer = PushBuffer(5)
    for number in range(8):
        buffer.add(encoder.encode([steps(float(number))], 1000.0 + number))
    assert (len(buffer), buffer.num_samples, buffer.num_dropped) == (5, 5, 3)
    assert opened(buffer.take_oldest().body)[0][1] == [(1003.0, 3.0)]


def test_a_dead_service_is_reported_once_and_everything_arrives_in_order_afterwards() -> None:
    service = Service(status=None)
    structlog.reset_defaults()
    with capture_logs() as logs:
        pusher, clock = pusher_for(service, counting())
        push(pusher, clock, 120)
        service.status = 204
        push(pusher, clock, 2)
    assert service.values() == [float(number) for number in range(1, 123)]
    assert [entry["event"] for entry in logs] == ["service_unavailable", "service_back"]
    assert logs[1]["samples_dropped"] == 0
    assert logs[1]["away_s"] == 120.0


@pytest.mark.parametrize(
    ("problem", "mend"),
    [
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), "agent.service_ca_file"),
        (httpx.ReadError(""), "begin with https:"),
        (httpx.ConnectError("All connection attempts failed"), "start the service"),
    ],
)
def test_a_service_that_cannot_be_talked_to_is_told_with_its_mend(problem: httpx.HTTPError, mend: str) -> None:
    service = Service(status=None, problem=problem)
    with capture_logs() as logs:
        pusher, clock = pusher_for(service, counting())
        push(pusher, clock, 3)
    assert [entry["event"] for entry in logs] == ["service_unavailable"]
    assert mend in logs[0]["mend"]


def test_a_second_trouble_while_the_service_is_away_is_told_too() -> None:
    service = Service(status=None)
    with capture_logs() as logs:
        pusher, clock = pusher_for(service, counting())
        push(pusher, clock, 3)
        service.problem = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
        push(pusher, clock, 3)
        service.status = 204
        push(pusher, clock, 1)
    assert [entry["event"] for entry in logs] == ["service_unavailable", "service_unavailable", "service_back"]
    assert "agent.service_ca_file" in logs[1]["mend"]
    assert logs[2]["away_s"] == 6.0
    assert service.values() == [float(number) for number in range(1, 8)]


def test_the_bound_is_kept_and_the_loss_is_told() -> None:
    service = Service(status=503)
    with capture_logs() as logs:
        pusher, clock = pusher_for(service, counting(), max_samples=10)
        push(pusher, clock, 30)
        service.status = 204
        push(pusher, clock, 1)
    assert service.values() == [float(number) for number in range(22, 32)]
    assert logs[-1]["samples_dropped"] == 21


def test_a_refused_batch_is_dropped_and_told_once() -> None:
    service = Service(status=400)
    with capture_logs() as logs:
        pusher, clock = pusher_for(service, counting(), token_file=Path("/etc/everstep/token"))
        push(pusher, clock, 5)
        service.status = 204
        push(pusher, clock, 1)
    assert service.values() == [6.0]
    assert [entry["event"] for entry in logs] == ["push_refused"]
    assert "version" in logs[0]["mend"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_does_not_match_is_told_once_and_nothing_is_lost(status: int) -> None:
    service = Service(status=status)
    with capture_logs() as logs:
        pusher, clock = pusher_for(service, counting(), token_file=Path("/etc/everstep/token"))
        push(pusher, clock, 5)
        service.status = 204
        push(pusher, clock, 1)
    assert service.values() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert [entry["event"] for entry in logs] == ["push_refused", "service_back"]
    assert "/etc/everstep/token" in logs[0]["mend"]


def test_too_many_requests_is_no_refusal() -> None:
    service = Service(status=429)
    pusher, clock = pusher_for(service, counting())
    push(pusher, clock, 2)
    service.status = 204
    push(pusher, clock, 1)
    assert service.values() == [1.0, 2.0, 3.0]


def test_batches_that_are_too_large_together_arrive_in_smaller_parts() -> None:
    service = Service(status=None)
    with capture_logs() as logs:
        pusher, clock = pusher_for(service, counting())
        push(pusher, clock, 120)
        service.status, service.most = 204, 1000
        push(pusher, clock, 2)
    assert service.values() == [float(number) for number in range(1, 123)]
    assert [entry["event"] for entry in logs] == ["service_unavailable", "service_back"]


def test_a_batch_that_is_too_large_alone_is_told_with_its_mend() -> None:
    service = Service()
    service.most = 10
    with capture_logs() as logs:
        pusher, clock = pusher_for(service, counting())
        push(pusher, clock, 3)
        service.most = 1000
        push(pusher, clock, 1)
    assert service.values() == [4.0]
    assert [entry["event"] for entry in logs] == ["push_refused"]
    assert "service.max_body_bytes" in logs[0]["mend"]
