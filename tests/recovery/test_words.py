"""The inbox that threads share."""

from __future__ import annotations

import threading
from typing import Any

from everstep.recovery.words import Inbox


def test_evidence_is_kept_only_while_somebody_wants_it(world: Any) -> None:
    inbox, news = Inbox(), (world.slow(1),)
    assert not inbox.put("a", news)
    inbox.open("a")
    assert inbox.put("a", news)
    assert inbox.put("a", news)
    assert inbox.take("a") == news + news
    assert inbox.take("a") == ()
    inbox.close("a")
    assert not inbox.put("a", news)


def test_evidence_ends_a_wait(world: Any) -> None:
    inbox = Inbox()
    inbox.open("a")
    threading.Timer(0.05, lambda: inbox.put("a", (world.slow(1),))).start()
    inbox.wait("a", 30.0)
    assert len(inbox.take("a")) == 1


def test_a_word_is_heard_once_and_only_when_asked_for() -> None:
    inbox = Inbox()
    assert not inbox.say("a", approved=True)
    inbox.ask("a")
    assert inbox.word("a") is None
    threading.Timer(0.05, lambda: inbox.say("a", approved=False)).start()
    inbox.heard("a", timeout_s=30.0)
    assert inbox.word("a") is False
    assert not inbox.say("a", approved=True)
    inbox.close("a")
    assert inbox.word("a") is None
