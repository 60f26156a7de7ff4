"""What survives a restart, in one SQLite file: incidents, attempts, the audit trail and what the detectors learned.

Implements `recovery.store.IncidentStore`. Reads are answered from memory and every write goes through to the file;
when the file cannot be written (disk full), the failure is logged and counted, the record stays in memory and is
written with the next write that works. One process only: a lock file says so.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import structlog

from everstep.core.engine import Attempt
from everstep.core.errors import ConfigError
from everstep.core.events import Incident
from everstep.service.records import attempt_from, dump, incident_from

FILE = "everstep.sqlite"
LOCK = "everstep.lock"
KEPT_INCIDENTS = 2000
BUSY_TIMEOUT_S = 2.0
MAX_PENDING = 10_000

_SAVE_INCIDENT = "insert or replace into incidents (id, job, opened, state, body) values (?, ?, ?, ?, ?)"
_SAVE_ATTEMPT = "insert or replace into attempts (job, number, body) values (?, ?, ?)"
_AUDIT = "insert into audit (at, kind, detail) values (?, ?, ?)"
_LEARNED = "insert or replace into learned (job, at, body) values (?, ?, ?)"


class SqliteStore:
    """Thread-safe. `on_failure` is called once for each write that did not reach the file."""

    def __init__(self, data_dir: Path, *, on_failure: Callable[[], None] = lambda: None) -> None:
        """Raises `ConfigError` when the directory or the file cannot be used or another process holds them."""
        self._log = structlog.get_logger()
        self._on_failure = on_failure
        self._lock = threading.RLock()
        self._pending: list[tuple[str, tuple[Any, ...]]] = []
        self._closed = False
        self._held = _hold(data_dir)
        try:
            self._database = sqlite3.connect(
                data_dir / FILE, check_same_thread=False, timeout=BUSY_TIMEOUT_S, isolation_level=None
            )
            self._database.execute("pragma journal_mode = wal")
            self._database.execute("pragma synchronous = normal")
            _migrate(self._database)
            self._incidents = self._load_incidents()
            self._attempts = self._load_attempts()
        except sqlite3.Error as error:
            os.close(self._held)
            raise ConfigError(
                f"cannot use {data_dir / FILE} ({error})", mend="free space, check permissions, or move the file away"
            ) from error

    def close(self) -> None:
        """What is saved later stays in memory: a recovery that is cut off is taken up from what the file holds."""
        with self._lock:
            self._flush()
            self._closed = True
            self._database.close()
            os.close(self._held)

    def save(self, incident: Incident) -> None:
        with self._lock:
            self._incidents[incident.id] = incident
            self._write(
                _SAVE_INCIDENT, incident.id, incident.job, incident.opened, incident.state.value, dump(incident)
            )

    def get(self, incident_id: str) -> Incident | None:
        with self._lock:
            return self._incidents.get(incident_id)

    def incidents(self, job: str | None = None) -> tuple[Incident, ...]:
        """Oldest first."""
        with self._lock:
            return tuple(incident for incident in self._incidents.values() if job is None or incident.job == job)

    def audit(self, at: float, kind: str, detail: Mapping[str, Any]) -> None:
        with self._lock:
            self._write(_AUDIT, at, kind, json.dumps(detail, default=str))

    def audit_trail(self, *, newest: int = 500) -> list[dict[str, Any]]:
        """The newest entries that reached the file, oldest first."""
        with self._lock:
            rows = self._database.execute(
                "select at, kind, detail from audit order by id desc limit ?", (newest,)
            ).fetchall()
        return [{"at": at, "kind": kind, "detail": json.loads(detail)} for at, kind, detail in reversed(rows)]

    def save_attempt(self, attempt: Attempt) -> None:
        with self._lock:
            self._attempts[attempt.job] = attempt
            self._write(_SAVE_ATTEMPT, attempt.job, attempt.number, dump(attempt))

    def last_attempt(self, job: str) -> Attempt | None:
        with self._lock:
            return self._attempts.get(job)

    def save_learned(self, job: str, at: float, state: Mapping[str, Any]) -> None:
        with self._lock:
            self._write(_LEARNED, job, at, dump(state))

    def learned(self, job: str) -> dict[str, Any]:
        """What `save_learned` kept; empty when there is nothing, or nothing that can be read."""
        try:
            with self._lock:
                row = self._database.execute("select body from learned where job = ?", (job,)).fetchone()
            found = json.loads(row[0]) if row else {}
            return dict(found)
        except (sqlite3.Error, ValueError, TypeError) as error:
            self._log.error("learned_unreadable", job=job, error=str(error), mend="none needed; it is learned anew")
            return {}

    def _write(self, statement: str, *values: Any) -> None:
        self._pending.append((statement, values))
        self._flush()

    def _flush(self) -> None:
        """Write what is pending, oldest first; what fails stays pending."""
        if self._closed:
            return
        try:
            while self._pending:
                statement, values = self._pending[0]
                self._database.execute(statement, values)
                self._pending.pop(0)
        except sqlite3.Error as error:
            self._on_failure()
            del self._pending[:-MAX_PENDING]
            self._log.error("store_write_failed", error=str(error), pending=len(self._pending))

    def _load_incidents(self) -> dict[str, Incident]:
        rows = self._database.execute(
            "select id, body from incidents order by opened desc limit ?", (KEPT_INCIDENTS,)
        ).fetchall()
        found = {}
        for key, body in reversed(rows):
            try:
                found[key] = incident_from(body)
            except (ValueError, KeyError, TypeError) as error:
                self._log.error("incident_unreadable", incident=key, error=str(error))
        return found

    def _load_attempts(self) -> dict[str, Attempt]:
        rows = self._database.execute("select job, body from attempts order by number").fetchall()
        found = {}
        for job, body in rows:
            try:
                found[job] = attempt_from(body)
            except (ValueError, KeyError, TypeError) as error:
                self._log.error("attempt_unreadable", job=job, error=str(error))
        return found


def _hold(data_dir: Path) -> int:
    """The descriptor that holds the lock until it is closed."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            f"cannot write to data directory {data_dir} ({error.strerror})",
            mend="set service.data_dir to a directory that this user can write",
        ) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        raise ConfigError(
            f"another everstep serve uses {data_dir}", mend="stop it, or set service.data_dir to another directory"
        ) from error
    return held


def _migrate(database: sqlite3.Connection) -> None:
    """Apply the numbered files of `migrations/` that the database does not have yet."""
    (version,) = database.execute("pragma user_version").fetchone()
    folder = resources.files("everstep.service") / "migrations"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    if version > len(files):
        raise sqlite3.DatabaseError("it was written by a newer Everstep")
    for number, name in enumerate(files, start=1):
        if number > version:
            script = (folder / name).read_text()
            database.executescript(f"begin;\n{script}\npragma user_version = {number};\ncommit;")
