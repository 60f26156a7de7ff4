from __future__ import annotations

from everstep.service.ring import Ring


def test_bounded_by_number() -> None:
    ring = Ring()
    for at in range(2000):
        ring.append(float(at), 1.0, window_s=1e9, most=100)
    times, _ = ring.arrays()
    assert len(times) <= 100 + 256
    assert times[-1] == 1999.0
    assert (times[1:] > times[:-1]).all()


def test_bounded_by_age() -> None:
    ring = Ring()
    for at in range(2048):
        ring.append(float(at), float(at), window_s=300, most=10_000)
    times, values = ring.arrays()
    assert times[0] >= 2047 - 300 - 256
    assert values[-1] == 2047.0
    assert ring.newest == (2047.0, 2047.0)


def test_empty() -> None:
    assert Ring().newest is None
    assert len(Ring()) == 0
