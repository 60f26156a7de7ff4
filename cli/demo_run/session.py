"""One demo run from start to verdict: cluster, training, fault, healing, reference, report."""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from everstep.cli.demo_run.cluster import Cluster, running_cluster
from everstep.cli.demo_run.evidence import CHECKPOINTS, phase_seconds, read_resumes, read_steps
from everstep.cli.demo_run.faults import inject, worker_nodes
from everstep.cli.demo_run.follow import Follower
from everstep.cli.demo_run.layout import Layout
from everstep.cli.demo_run.reference import run_reference
from everstep.cli.demo_run.scenario import JOB, REFERENCE_JOB, SCENARIOS, DemoFault
from everstep.cli.demo_run.screen import Screen
from everstep.cli.demo_run.verdict import (
    Injection,
    ResumeLine,
    RunEvidence,
    StepLine,
    Verdict,
    judge,
    main_incident,
    newest_by_step,
)
from everstep.core.errors import EverstepError
from everstep.core.events import EntityKind, Incident
from everstep.service.records import plain
from everstep.service.report import Curve, Mark, Proof, RunFacts, render, render_quiet

DISK_EVERY_STEPS = 10
DEADLINE_S = 150.0
COLD_DEADLINE_S = 420.0
RUN_CONFIG = "run.yaml"
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

References = dict[tuple[int, ...], tuple[StepLine, ...]]
"""Finished reference runs of one seed by their skipped batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """`output` is where report and incident go; `cold` restarts through torchrun, `keep` leaves logs and state."""

    output: Path
    seed: int
    steps: int
    cold: bool = False
    keep: bool = False


@dataclass(slots=True, kw_only=True)
class _Watched:
    """What was seen of a run before the reference is trained."""

    injection: Injection | None
    incidents: tuple[Incident, ...]
    before: Mapping[int, str]
    after: Mapping[int, str]
    budget: Mapping[str, float]
    cordoned: frozenset[str] = field(default_factory=frozenset)
    lost_nodes: frozenset[str] = field(default_factory=frozenset)


def run_fault(fault: DemoFault, options: DemoOptions, screen: Screen, references: References) -> Verdict:
    """Raises `EverstepError` when the run itself could not be made; a run that went wrong is a verdict."""
    screen.say(f"everstep demo: {fault} ({SCENARIOS[fault].story}), seed {options.seed}, {options.steps} steps")
    try:
        verdict = _run_on_cluster(fault, options, screen, references)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise EverstepError(
            f"cannot write {error.filename or options.output} ({error.strerror})",
            mend="free space, or choose another folder with --output",
        ) from error
    screen.verdict(verdict)
    return verdict


def _run_on_cluster(fault: DemoFault, options: DemoOptions, screen: Screen, references: References) -> Verdict:
    deadline = time.monotonic() + (COLD_DEADLINE_S if options.cold else DEADLINE_S)
    with (
        running_cluster(
            options.output, lambda layout: _jobs(layout, options), cold=options.cold, keep=options.keep
        ) as cluster,
        screen.steps(options.steps),
    ):
        try:
            verdict = _run(fault, cluster, options, screen, references, deadline)
        except EverstepError:
            _save_logs(cluster.layout, options.output, screen)
            raise
        if not verdict.ok:
            _save_logs(cluster.layout, options.output, screen)
    return verdict


def _run(
    fault: DemoFault,
    cluster: Cluster,
    options: DemoOptions,
    screen: Screen,
    references: References,
    deadline: float,
) -> Verdict:
    started = time.monotonic()
    cluster.wait_ready()
    screen.event(None, "service and 4 agents ready", f"after {time.monotonic() - started:.1f} s")
    follower = Follower(cluster, screen, total_steps=options.steps, deadline=deadline)
    watched = _train_and_break(fault, cluster, follower, screen)
    skip = _skipped(watched.injection)
    if skip not in references:
        screen.event(None, "reference run", "same seed, no fault")
        references[skip] = run_reference(cluster, screen, skip=skip, total_steps=options.steps, deadline=deadline)
    watched.incidents = follower.linger()
    evidence = _evidence(fault, options, cluster.layout, watched, references[skip])
    verdict = judge(evidence)
    _write_report(options.output, evidence, verdict, watched.budget)
    return verdict


def _save_logs(layout: Layout, output: Path, screen: Screen) -> None:
    """Scratch goes away with the run; what explains a failure stays, as far as there is room for it."""
    try:
        shutil.copytree(layout.root / "logs", output / "logs", dirs_exist_ok=True)
    except OSError:
        screen.say(f"not all logs could be kept in {output / 'logs'}; free space there")


def _skipped(injection: Injection | None) -> tuple[int, ...]:
    return () if injection is None or injection.batch is None else (injection.batch,)


def _train_and_break(fault: DemoFault, cluster: Cluster, follower: Follower, screen: Screen) -> _Watched:
    baseline = follower.wait_learned()
    screen.event(None, "baseline learned", f"median step {baseline['median_step_s']:.3f} s")
    before = worker_nodes(cluster)
    injection = inject(fault, cluster)
    lost: frozenset[str] = frozenset()
    if injection is not None:
        screen.event(0.0, "injected", f"{fault}: {injection.culprit}")
        if injection.culprit.kind is EntityKind.NODE:
            lost = frozenset({injection.culprit.name})
            follower.expect_dead(lost)
    incidents = follower.wait_end(injection)
    after = _placements(cluster)
    return _Watched(
        injection=injection,
        incidents=incidents,
        before=before,
        after=after,
        budget=_budget(cluster.layout, after),
        cordoned=_cordoned(cluster),
        lost_nodes=lost,
    )


def _placements(cluster: Cluster) -> dict[int, str]:
    """Rank to node of the newest attempt, from the service."""
    job = cluster.service.get("/api/v1/jobs")["jobs"].get(JOB, {})
    return {int(one["rank"]): str(one["node"]) for one in job.get("placements", [])}


def _budget(layout: Layout, placements: Mapping[int, str]) -> dict[str, float]:
    if 0 not in placements:
        return {}
    return phase_seconds(layout.run_dir(placements[0]) / "records" / JOB / "rank-0.rec")


def _cordoned(cluster: Cluster) -> frozenset[str]:
    return frozenset(node for node, agent in cluster.living_agents().items() if agent.get("/v1/status")["cordoned"])


def _jobs(layout: Layout, options: DemoOptions) -> list[dict[str, Any]]:
    """The two commands that the agents may run, with the trainer's configuration files written beside."""
    return [_job(layout, options, name) for name in (JOB, REFERENCE_JOB)]


def _job(layout: Layout, options: DemoOptions, name: str) -> dict[str, Any]:
    folder = layout.job_dir(name)
    folder.mkdir(parents=True, exist_ok=True)
    reference = name == REFERENCE_JOB
    every = {"memory_every_steps": 0, "disk_every_steps": 0} if reference else {"disk_every_steps": DISK_EVERY_STEPS}
    run = {
        "output_dir": str(folder),
        "job": name,
        "steps": options.steps,
        "seed": options.seed,
        "chaos": not reference,
        "checkpoint": every,
    }
    (folder / RUN_CONFIG).write_text(yaml.safe_dump(run, sort_keys=False))
    return {
        "name": name,
        "program": ["-m", "everstep.trainer.worker", "--config", str(folder / RUN_CONFIG)],
        "preload": [] if reference else ["everstep.trainer.preload"],
        "environment": {"GLOO_SOCKET_IFNAME": "lo"},
        "checkpoint_dir": str(folder / CHECKPOINTS),
    }


def _evidence(
    fault: DemoFault, options: DemoOptions, layout: Layout, watched: _Watched, reference: tuple[StepLine, ...]
) -> RunEvidence:
    return RunEvidence(
        fault=fault,
        seed=options.seed,
        total_steps=options.steps,
        injection=watched.injection,
        incidents=watched.incidents,
        steps=read_steps(layout.job_dir(JOB)),
        resumes=read_resumes(layout.job_dir(JOB)),
        reference=reference,
        placements_before=watched.before,
        placements_after=watched.after,
        cordoned=watched.cordoned,
        lost_nodes=watched.lost_nodes,
    )


def _write_report(output: Path, evidence: RunEvidence, verdict: Verdict, budget: Mapping[str, float]) -> None:
    incident = main_incident(evidence)
    facts = _facts(evidence, verdict, budget)
    page = render(incident, facts) if incident is not None else render_quiet(facts.title, facts)
    (output / "report.html").write_text(page)
    content = {"verdict": verdict.as_json(), "incidents": plain(evidence.incidents)}
    (output / "incident.json").write_text(json.dumps(content, indent=2) + "\n")


def _facts(evidence: RunEvidence, verdict: Verdict, budget: Mapping[str, float]) -> RunFacts:
    injection = evidence.injection
    own = newest_by_step(evidence.steps)
    other = newest_by_step(evidence.reference)
    before = [line.step for line in evidence.steps if injection is not None and line.at <= injection.at]
    story = SCENARIOS[evidence.fault].story
    return RunFacts(
        title=f"Everstep demo: {evidence.fault}, seed {evidence.seed}",
        origin=injection.at if injection is not None else None,
        marks=_marks(injection, verdict.resumed_from, story),
        curves=(
            Curve(name="this run", points=[(step, own[step].loss) for step in sorted(own)]),
            Curve(name="uninterrupted reference", points=[(step, other[step].loss) for step in sorted(other)]),
        ),
        fault_step=max(before, default=None) if injection is not None else None,
        resume_step=verdict.resumed_from.step if verdict.resumed_from is not None else None,
        budget=budget,
        proofs=tuple(Proof(name=check.name, ok=check.ok, detail=check.detail) for check in verdict.checks),
    )


def _marks(injection: Injection | None, resumed: ResumeLine | None, story: str) -> tuple[Mark, ...]:
    if injection is None:
        return ()
    injected = Mark(at=injection.at, label="injected", detail=story)
    if resumed is None:
        return (injected,)
    restored = f"attempt {resumed.attempt} holds the state of step {resumed.step} from {resumed.tier or 'the seed'}"
    return (injected, Mark(at=resumed.at, label="restored", detail=restored))
