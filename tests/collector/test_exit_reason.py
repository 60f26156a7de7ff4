from __future__ import annotations

from pathlib import Path

import pytest

from everstep.collector.exit_reason import REASONS, TAIL_BYTES, ExitReason, classify, read_tail

# Messages of torch 2.13 over gloo, taken from workers whose peer was killed, stopped or never came.
GLOO_RESET = (
    "[rank0]: Traceback (most recent call last):\n"
    '[rank0]:   File "train.py", line 24, in <module>\n'
    "[rank0]:     dist.all_reduce(t)\n"
    "[rank0]: RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error "
    "[127.0.0.1]:426: Connection reset by peer. This is typically caused by a remote worker hanging or bugs in the "
    "application. Check the logs of the remote worker before reporting an error. GLHF!\n"
)
GLOO_CLOSED = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[127.0.0.1]:41355. This is typically caused by a remote worker crashing.\n"
)
GLOO_STOPPED = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting "
    "3000ms for recv operation to complete\n"
)
STORE_GONE = (
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
    "server shutdown or crash?\n"
)
STORE_WAIT = "torch.distributed.DistStoreError: wait timeout after 3000ms, keys: /default_pg/0//cpu//0/0\n"
NO_SHOW = "torch.distributed.DistStoreError: Timed out after 4 seconds waiting for clients. 2/3 clients joined.\n"
NCCL_ABORT = (
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    "  what():  [PG ID 0 PG GUID 0 Rank 1] Process group watchdog thread terminated with exception: NCCL error: "
    "remote process exited or there was a network error\n"
)
WRAPPED = (
    "Traceback (most recent call last):\n"
    '  File "loop.py", line 1, in step\n'
    f"{GLOO_CLOSED}"
    "\nThe above exception was the direct cause of the following exception:\n\n"
    "Traceback (most recent call last):\n"
    '  File "loop.py", line 9, in <module>\n'
    "StepError: step 12 failed\n"
)
SURVIVED = (
    "Traceback (most recent call last):\n"
    f"{GLOO_CLOSED}"
    "retrying the upload\n"
    "Traceback (most recent call last):\n"
    '  File "loop.py", line 3, in <module>\n'
    "KeyError: 'tokens'\n"
)


@pytest.mark.parametrize("tail", [GLOO_RESET, GLOO_CLOSED, GLOO_STOPPED, STORE_GONE, STORE_WAIT, NO_SHOW, WRAPPED])
def test_a_lost_peer_is_read_from_the_log(tail: str) -> None:
    assert classify(1, tail) is ExitReason.PEER_LOST


def test_a_wrapped_error_with_torchs_rank_prefix_is_still_one_chain() -> None:
    prefixed = "".join(f"[rank1]: {line}\n" for line in WRAPPED.splitlines())
    assert classify(1, prefixed) is ExitReason.PEER_LOST


def test_an_error_that_was_survived_is_not_the_reason() -> None:
    assert classify(1, SURVIVED) is ExitReason.EXCEPTION


def test_an_abort_after_a_lost_peer_is_a_victim() -> None:
    assert classify(-6, NCCL_ABORT) is ExitReason.PEER_LOST
    assert classify(-6, "free(): invalid pointer\n") is ExitReason.SIGNAL


@pytest.mark.parametrize(
    ("code", "tail", "reason"),
    [
        (0, "", ExitReason.SUCCESS),
        (-9, GLOO_CLOSED, ExitReason.SIGNAL),
        (-11, "", ExitReason.SIGNAL),
        (73, "", ExitReason.OUT_OF_MEMORY),
        (74, "", ExitReason.DISK_FULL),
        (75, GLOO_CLOSED, ExitReason.CHECKPOINT),
        (76, "", ExitReason.FENCED),
        (77, "", ExitReason.NONFINITE),
        (78, "", ExitReason.PEER_LOST),
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", ExitReason.OUT_OF_MEMORY),
        (1, "MemoryError\n", ExitReason.OUT_OF_MEMORY),
        (1, "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", ExitReason.OUT_OF_MEMORY),
        (1, "OSError: [Errno 28] No space left on device: 'shard.pt'", ExitReason.DISK_FULL),
        (1, "OSError: [Errno 122] Disk quota exceeded", ExitReason.DISK_FULL),
        (1, "ZeroDivisionError: division by zero", ExitReason.EXCEPTION),
        (2, "", ExitReason.EXCEPTION),
    ],
)
def test_status_and_last_words_name_the_reason(code: int, tail: str, reason: ExitReason) -> None:
    assert classify(code, tail) is reason


def test_what_the_agent_ended_is_its_own_doing() -> None:
    assert classify(-9, "", stopped_by_agent=True) is ExitReason.STOPPED_BY_AGENT
    assert classify(1, GLOO_CLOSED, stopped_by_agent=True) is ExitReason.STOPPED_BY_AGENT


def test_the_reasons_are_those_of_the_metric_table() -> None:
    assert tuple(reason.value for reason in ExitReason) == REASONS


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"x" * 100_000 + b"\xffthe end")
    tail = read_tail(log)
    assert tail.endswith("the end")
    assert len(tail) == TAIL_BYTES
    assert read_tail(tmp_path / "none") == ""
