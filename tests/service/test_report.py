"""The report: everything that is known stands in it, nothing in it is trusted, nothing is loaded from outside."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

from everstep.core.actions import Action, ActionKind, Outcome, Plan, PlannedAction
from everstep.core.events import (
    Anomaly,
    Direction,
    Entity,
    EntityKind,
    Evidence,
    Incident,
    IncidentState,
    RootCause,
    Standing,
)
from everstep.service.report import Curve, Mark, Proof, RunFacts, render, render_quiet

RANK = Entity(kind=EntityKind.RANK, name="demo/1")
NASTY = "<script>alert('x')</script>"


def incident(**changes: object) -> Incident:
    fields: dict[str, object] = {
        "id": "inc-7",
        "job": "demo",
        "attempt": 1,
        "opened": 1000.5,
        "onset": 1000.0,
        "state": IncidentState.RESOLVED,
        "anomalies": (
            Anomaly(
                entity=RANK,
                metric="everstep_worker_state",
                onset_earliest=1000.1,
                onset_latest=1000.3,
                score=2.0,
                direction=Direction.CHANGE,
                detector="process",
                observed=-9.0,
                expected=0.0,
            ),
        ),
        "causes": (
            RootCause(
                entity=RANK,
                fault="SOFTWARE",
                confidence=0.873,
                chain=(
                    Evidence(
                        at=1000.3,
                        entity=RANK,
                        metric="everstep_worker_exit_code",
                        observed="-9",
                        expected="0",
                        rule="a death by signal explains lost peers",
                    ),
                ),
                rival="rank demo/0 only lost its peer",
                missing=("everstep_gpu_up",),
            ),
        ),
        "plan": Plan(
            reason="software, evict nobody", actions=(Action(kind=ActionKind.RESTART_PROCESS, target="demo"),)
        ),
        "actions": (
            PlannedAction(
                action=Action(kind=ActionKind.RESTART_PROCESS, target="demo"),
                outcome=Outcome.SUCCEEDED,
                started=1000.6,
                ended=1002.1,
                detail="attempt 2",
            ),
        ),
        "recovered": 1003.0,
        "closed": 1004.0,
    }
    return Incident(**{**fields, **changes})  # type: ignore[arg-type]


def facts(**changes: object) -> RunFacts:
    fields: dict[str, object] = {
        "origin": 1000.0,
        "marks": (Mark(at=1000.0, label="injected", detail="SIGKILL of one worker"),),
        "curves": (Curve(name="this run", points=[(1, 5.0), (2, 4.0), (3, 3.0)]),),
        "fault_step": 2,
        "budget": {"forward": 0.05, "backward": 0.15},
        "proofs": (Proof(name="nothing committed was lost", ok=True, detail="resumed from step 2"),),
    }
    return RunFacts(**{**fields, **changes})  # type: ignore[arg-type]


class Checker(HTMLParser):
    """Collects tags left open and attributes that load something."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(value) for name, value in attrs if name in {"src", "href", "srcset", "action", "data"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    page = render(incident(), facts())
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.loads == []
    assert not re.search(r"https?:|//|@import|url\(", page)


def test_the_page_tells_cause_chain_rival_actions_and_proof() -> None:
    page = render(incident(), facts())
    for words in (
        "rank demo/1",
        "process exit (SOFTWARE)",
        "confidence 87 %",
        "a death by signal explains lost peers",
        "rank demo/0 only lost its peer",
        "everstep_gpu_up",
        "software, evict nobody",
        "restart_process: succeeded",
        "resumed from step 2",
    ):
        assert words in page
    assert '<td class="number">1.50</td>' in page
    assert "(rival" not in page


def test_a_rival_is_called_one() -> None:
    (cause,) = incident().causes
    other = RootCause(entity=RANK, fault="UNKNOWN", confidence=0.1, standing=Standing.RIVAL)
    page = render(incident(causes=(cause, other)), facts())
    assert "unknown <span" in page
    assert page.count("(rival") == 1


def test_the_timeline_is_in_order_and_relative_to_the_injection() -> None:
    page = render(incident(), facts())
    offsets = [float(text) for text in re.findall(r'<tr><td class="number">([+-][\d.]+)</td><td>[^<]*</td>', page)]
    timeline = offsets[: offsets.index(4.0) + 1]
    assert timeline == sorted(timeline)
    assert timeline[0] == 0.0


def test_every_value_is_escaped() -> None:
    nasty = Entity(kind=EntityKind.NODE, name=NASTY)
    cause = RootCause(entity=nasty, fault=NASTY, confidence=0.5, rival=NASTY, missing=(NASTY,))
    page = render(
        incident(job=NASTY, causes=(cause,), notes=(NASTY,)),
        facts(title=NASTY, proofs=(Proof(name=NASTY, ok=False, detail=NASTY),), budget={NASTY: 1.0}),
    )
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 8


def test_the_loss_curve_marks_the_fault_and_breaks_at_nan() -> None:
    page = render(incident(), facts(curves=(Curve(name="run", points=[(1, 5.0), (2, math.nan), (3, 3.0)]),)))
    path = re.search(r'd="([^"]+)"', page)
    assert path is not None
    assert path.group(1).count("M") == 2
    assert "nan" not in path.group(1)
    assert ">fault 2</text>" in page


def test_an_incident_without_anything_yet_still_renders() -> None:
    bare = Incident(id="i", job="demo", attempt=1, opened=1.0, onset=1.0)
    page = render(bare)
    assert "No cause is known yet." in page
    assert "<svg" not in page


def test_a_quiet_run_says_so_and_shows_its_proof() -> None:
    page = render_quiet("Everstep demo: none", facts(origin=None, marks=(), fault_step=None))
    assert "No incident opened." in page
    assert "resumed from step 2" in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
