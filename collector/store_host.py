"""The process that holds one attempt's TCPStore, outside of every worker, so that no worker's death takes it along."""

from __future__ import annotations

import os
import signal
import socket
import traceback
from pathlib import Path

from everstep.collector import worker_entry


def serve(host: str, answer: int, log: Path) -> None:
    """Open the store, write its port (or `error: …`) to the file descriptor `answer`, stay until told to end."""
    status = 1
    try:
        worker_entry.redirect(log)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        _open_and_wait(host, answer)
        status = 0
    except (OSError, ImportError, RuntimeError) as error:
        traceback.print_exc()
        os.write(answer, f"error: {type(error).__name__}: {error}\n".encode()[:500])
    finally:
        os._exit(status)


def _open_and_wait(host: str, answer: int) -> None:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, 0), family=family, backlog=256)
    port = listener.getsockname()[1]
    # Bound by us, to one address: the store's own listener would take every interface.
    store = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    os.write(answer, f"{port}\n".encode())
    os.close(answer)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del store
