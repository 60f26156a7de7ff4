"""Persons' words and detectors' news for recoveries that are under way: the only state that threads share."""

from __future__ import annotations

import threading

from everstep.core.events import Anomaly


class Inbox:
    """Evidence by incident, and whether a waiting plan was approved; thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._evidence: dict[str, list[Anomaly]] = {}
        self._words: dict[str, bool | None] = {}

    def open(self, incident_id: str) -> None:
        with self._changed:
            self._evidence.setdefault(incident_id, [])

    def close(self, incident_id: str) -> None:
        with self._changed:
            self._evidence.pop(incident_id, None)
            self._words.pop(incident_id, None)

    def put(self, incident_id: str, anomalies: tuple[Anomaly, ...]) -> bool:
        """Whether the incident is under way; evidence for any other one is not kept."""
        with self._changed:
            held = self._evidence.get(incident_id)
            if held is None:
                return False
            held.extend(anomalies)
            self._changed.notify_all()
            return True

    def take(self, incident_id: str) -> tuple[Anomaly, ...]:
        with self._changed:
            held = self._evidence.get(incident_id, [])
            taken = tuple(held)
            held.clear()
            return taken

    def wait(self, incident_id: str, seconds: float) -> None:
        """Returns early when there is evidence."""
        with self._changed:
            if not self._evidence.get(incident_id):
                self._changed.wait(seconds)

    def ask(self, incident_id: str) -> None:
        """From now on a word is waited for."""
        with self._changed:
            self._words.setdefault(incident_id, None)

    def say(self, incident_id: str, *, approved: bool) -> bool:
        """Whether anybody waited for this word."""
        with self._changed:
            if self._words.get(incident_id, False) is not None:
                return False
            self._words[incident_id] = approved
            self._changed.notify_all()
            return True

    def word(self, incident_id: str) -> bool | None:
        """None while nobody has spoken."""
        with self._changed:
            return self._words.get(incident_id)

    def heard(self, incident_id: str, *, timeout_s: float) -> None:
        """Wait for a word, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._words.get(incident_id) is not None, timeout_s)
