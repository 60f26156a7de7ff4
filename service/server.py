"""Runs the service behind uvicorn until it is told to stop."""

from __future__ import annotations

import logging
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import structlog
import uvicorn

from everstep.core.errors import ConfigError, EverstepError
from everstep.core.http_server import PromptProtocol, raise_descriptor_limit
from everstep.core.settings import Endpoint, ServiceSettings
from everstep.service.wiring import Service

GRACE_S = 2  # what open requests get before the server ends
BACKLOG = 512


class _Server(uvicorn.Server):
    """Ends the event streams at the first signal, so that they do not hold the server up, and returns after it.

    uvicorn itself raises the signal again when it is done, which would end the process before the service has stopped.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.bus.close()
        super().handle_exit(sig, frame)


def serve(settings: ServiceSettings) -> None:
    """Blocks until SIGINT or SIGTERM. Raises `EverstepError` when the port, a file or the directory cannot be used."""
    _configure_logging()
    raise_descriptor_limit()
    log = structlog.get_logger()
    listener = _listen(settings.listen)
    try:
        service = Service(settings)
    except BaseException:
        listener.close()
        raise
    try:
        config = _config(service, settings.listen)  # may refuse TLS files: before any job is started
        service.start()
        scheme = "https" if settings.listen.tls_certificate is not None else "http"
        host, port = listener.getsockname()[:2]
        log.info("listening", url=f"{scheme}://{host}:{port}", jobs=[job.name for job in settings.jobs])
        _Server(config, service).run(sockets=[listener])
    finally:
        service.stop()
        listener.close()
        log.info("stopped")


def _config(service: Service, listen: Endpoint) -> uvicorn.Config:
    try:
        config = uvicorn.Config(
            service.app,
            http=PromptProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=listen.tls_certificate,
            ssl_keyfile=listen.tls_key,
        )
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot use TLS files {listen.tls_certificate} and {listen.tls_key} ({error})",
            mend="give a readable PEM certificate and its key",
        ) from error
    return config


def _listen(listen: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((listen.host, listen.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise EverstepError(
            f"cannot listen on {listen.host}:{listen.port} ({error.strerror})",
            mend="set service.listen to a free port and an address of this machine",
        ) from error
    listener.set_inheritable(False)
    return listener


def _configure_logging() -> None:
    """One line an event on standard error; the libraries' chatter from warning up."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
