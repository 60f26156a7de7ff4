from __future__ import annotations

import threading

import pytest

from everstep.service.workers import DaemonWorkers


def test_results_and_errors_come_back() -> None:
    workers = DaemonWorkers()
    assert workers.submit(lambda left, right: left + right, 1, right=2).result(5) == 3
    with pytest.raises(ZeroDivisionError):
        workers.submit(lambda: 1 / 0).result(5)


def test_threads_do_not_hold_the_exit_up() -> None:
    assert DaemonWorkers().submit(lambda: threading.current_thread().daemon).result(5) is True
