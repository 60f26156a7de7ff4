"""How fast the demo finds, heals and proves each fault: N seeded runs of every fault on real processes.

Each seed is one `everstep demo --json` in a process of its own. Raw results are appended to `results/demo.jsonl`,
so that an interrupted bench goes on where it stopped; a cold restart through torchrun stands beside each row.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from everstep.bench.harness import RESULTS, BenchResult, Label, arguments, commit, finish, provenance
from everstep.cli.demo_run.scenario import ALL, SCENARIOS, DemoFault

RAW = RESULTS / "demo.jsonl"
RUN_TIMEOUT_S = 300.0
QUICK_FAULTS = (DemoFault.KILL_PROCESS,)
HANG_STEPS = 3.0
HANG_FLOOR_S = 5.0

Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Bounds in seconds, median and worst; `steps` bounds the steps until found. None is no bound."""

    found_median_s: float | None = None
    found_worst_s: float | None = None
    found_steps: int | None = None
    back_median_s: float | None = None
    back_worst_s: float | None = None


GOALS: dict[DemoFault, Goal] = {
    DemoFault.KILL_PROCESS: Goal(found_median_s=1, found_worst_s=3, back_median_s=5, back_worst_s=8),
    DemoFault.HANG_PROCESS: Goal(found_worst_s=HANG_FLOOR_S, back_worst_s=10),
    DemoFault.KILL_NODE: Goal(found_median_s=3, back_median_s=8, back_worst_s=12),
    DemoFault.NAN_LOSS: Goal(found_steps=1, back_worst_s=8),
    DemoFault.SLOW_RANK: Goal(found_steps=20),
    DemoFault.CORRUPT_CHECKPOINT: Goal(found_worst_s=1, back_worst_s=8),
    DemoFault.NONE: Goal(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; `missed` lists the goals that were not met."""

    fault: DemoFault
    num_runs: int
    num_ok: int
    num_right: int
    found: tuple[float, ...]
    back: tuple[float, ...]
    detect_steps: tuple[int, ...]
    lost_steps: int
    false_incidents: int
    missed: tuple[str, ...]
    cold_back: tuple[float, ...] = ()


def row(fault: DemoFault, runs: Sequence[Run], cold: Sequence[Run]) -> Row:
    """Pure: the table line of one fault from its runs."""
    found = _numbers(runs, "mttd_s")
    back = _numbers(runs, "mttr_s")
    steps = tuple(int(run["detect_steps"]) for run in runs if run["detect_steps"] is not None)
    return Row(
        fault=fault,
        num_runs=len(runs),
        num_ok=sum(bool(run["ok"]) for run in runs),
        num_right=sum(run["culprit"] == run["expected"] for run in runs),
        found=found,
        back=back,
        detect_steps=steps,
        lost_steps=max((int(run["lost_steps"]) for run in runs), default=0),
        false_incidents=sum(int(run["false_incidents"]) for run in runs),
        missed=_missed(fault, runs, found, back, steps),
        cold_back=_numbers(cold, "mttr_s"),
    )


def _numbers(runs: Sequence[Run], key: str) -> tuple[float, ...]:
    return tuple(float(run[key]) for run in runs if run[key] is not None)


def _missed(
    fault: DemoFault, runs: Sequence[Run], found: tuple[float, ...], back: tuple[float, ...], steps: tuple[int, ...]
) -> tuple[str, ...]:
    goal = GOALS[fault]
    found_worst = goal.found_worst_s
    if fault is DemoFault.HANG_PROCESS:
        longest = max((HANG_STEPS * (run["step_median_s"] or 0.0) for run in runs), default=0.0)
        found_worst = max(HANG_FLOOR_S, longest)
    bounds: list[tuple[str, float | None, Callable[[tuple[float, ...]], float], tuple[float, ...]]] = [
        ("found, median", goal.found_median_s, median, found),
        ("found, worst", found_worst, max, found),
        ("steps until found", goal.found_steps, max, tuple(float(step) for step in steps)),
        ("back, median", goal.back_median_s, median, back),
        ("back, worst", goal.back_worst_s, max, back),
    ]
    missed = [name for name, bound, of, seen in bounds if bound is not None and (not seen or of(seen) > bound)]
    if not all(run["ok"] for run in runs):
        missed.append("outcome")
    return tuple(missed)


def page(rows: Sequence[Row], command: str) -> str:
    """The Markdown page."""
    head = (
        "# everstep demo\n\n"
        "Real processes on this machine. Times in seconds as median / worst over the runs: from the injection to the "
        "opened incident (found) and to the next good step of the healed job (back).\n\n"
        "| fault | runs ok | found | steps until found | back | lost steps | culprit first | false incidents "
        "| cold restart, back | goals |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(_line(one) for one in rows) + "\n" + _goals_text() + "\n" + provenance(command)


def _line(one: Row) -> str:
    quiet = one.fault is DemoFault.NONE
    cells = [
        one.fault.value,
        f"{one.num_ok}/{one.num_runs}",
        _pair(one.found),
        "-" if not one.detect_steps else f"{median(one.detect_steps):g} / {max(one.detect_steps)}",
        _pair(one.back),
        "-" if quiet else str(one.lost_steps),
        "-" if quiet else f"{one.num_right}/{one.num_runs}",
        str(one.false_incidents),
        f"{_pair(one.cold_back)} (n = {len(one.cold_back)})" if one.cold_back else "-",
        "met" if not one.missed else "missed: " + ", ".join(one.missed),
    ]
    return "| " + " | ".join(cells) + " |\n"


def _pair(values: tuple[float, ...]) -> str:
    return f"{median(values):.2f} / {max(values):.2f}" if values else "-"


def _goals_text() -> str:
    said = []
    for fault, goal in GOALS.items():
        parts = [
            *([f"found within {goal.found_median_s:g} s median"] if goal.found_median_s else []),
            *([f"found within {goal.found_worst_s:g} s worst"] if goal.found_worst_s else []),
            *([f"found within {goal.found_steps} steps"] if goal.found_steps else []),
            *([f"back within {goal.back_median_s:g} s median"] if goal.back_median_s else []),
            *([f"back within {goal.back_worst_s:g} s worst"] if goal.back_worst_s else []),
        ]
        said.append(f"- {fault.value}: {', '.join(parts) or 'no incident, or rank moved and nobody else touched'}\n")
    lost = (
        "Lost steps are committed steps that the job did not resume from. For corrupt_checkpoint they are what the "
        "damaged copies held, and all of them are trained again.\n"
    )
    return "Goals:\n\n" + "".join(said) + "\n" + lost


def read_raw(path: Path, key: str) -> list[dict[str, Any]]:
    """Results of this commit from an earlier, perhaps interrupted, bench."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [line for line in lines if line["commit"] == key]


def invoke(fault: str, seed: int, *, cold: bool, timeout_s: float) -> dict[str, Any]:
    """The object that one `everstep demo --json` prints. Raises `ValueError` when it printed none in time."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as output:
        command = [sys.executable, "-m", "everstep.cli.main", "demo", "--json"]
        command += ["--fault", fault, "--seed", str(seed), "--output", output, *(["--cold"] if cold else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"no result within {timeout_s:.0f} s") from error
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise ValueError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return dict(json.loads(lines[-1]))


def runs_of_seed(faults: Sequence[DemoFault], seed: int, *, cold: bool) -> Iterator[dict[str, Any]]:
    """Each fault once. All faults go through one command, which trains each reference run only once."""
    if set(faults) == set(SCENARIOS) and not cold:
        try:
            yield from invoke(ALL, seed, cold=cold, timeout_s=RUN_TIMEOUT_S * len(faults))["runs"]
        except ValueError as error:
            print(f"all faults in one go: {error}; one by one", flush=True)
        else:
            return
    for fault in faults:
        try:
            yield invoke(fault.value, seed, cold=cold, timeout_s=RUN_TIMEOUT_S)
        except ValueError as error:
            yield _failed(fault, seed, str(error))


def _failed(fault: DemoFault, seed: int, why: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("culprit", "mttd_s", "mttr_s", "detect_steps", "step_median_s"))
    failed = {"fault": fault.value, "seed": seed, "ok": False, "lost_steps": 0, "false_incidents": 0}
    return {**nothing, **failed, "expected": "a result", "failures": [f"no result: {why}"]}


def collect(faults: tuple[DemoFault, ...], seeds: range, *, cold: bool, key: str) -> list[dict[str, Any]]:
    """Every (seed, fault) of the plan, from the raw file or run now."""
    known = {(line["fault"], line["seed"], line["cold"]): line for line in read_raw(RAW, key)}
    results = []
    for seed in seeds:
        held = [line for fault in faults if (line := known.get((fault.value, seed, cold))) is not None]
        missing = [fault for fault in faults if (fault.value, seed, cold) not in known]
        for line in held:
            _progress(line, cold=cold)
        results += held
        for run in runs_of_seed(missing, seed, cold=cold) if missing else ():
            line = {**run, "cold": cold, "commit": key}
            RAW.parent.mkdir(parents=True, exist_ok=True)
            with RAW.open("a") as file:
                file.write(json.dumps(line) + "\n")
            _progress(line, cold=cold)
            results.append(line)
    return results


def _progress(line: Run, *, cold: bool) -> None:
    state = "ok" if line["ok"] else "NOT OK: " + "; ".join(line.get("failures", []))
    times = f"found {_show(line['mttd_s'])}, back {_show(line['mttr_s'])}"
    print(f"{line['fault']:<20} seed {line['seed']} {'cold' if cold else 'warm'}: {times}, {state}", flush=True)


def _show(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.2f} s"


def main(argv: list[str] | None = None) -> int:
    parser = arguments("demo", "Runs of everstep demo, every fault, on real processes.")
    parser.add_argument("--runs", type=int, default=None, help="runs of each fault (full: 5, quick: 1)")
    parser.add_argument("--cold-runs", type=int, default=None, help="runs of each fault through torchrun (full: 1)")
    options: argparse.Namespace = parser.parse_args(argv)
    faults = tuple(SCENARIOS) if options.full else QUICK_FAULTS
    num_runs = options.runs if options.runs is not None else (5 if options.full else 1)
    num_cold = options.cold_runs if options.cold_runs is not None else (1 if options.full else 0)
    key = commit()
    warm = collect(faults, range(options.seed, options.seed + num_runs), cold=False, key=key)
    healed = tuple(fault for fault in faults if fault is not DemoFault.NONE)
    cold = collect(healed, range(options.seed, options.seed + num_cold), cold=True, key=key)
    rows = [row(fault, _of(fault, warm), _of(fault, cold)) for fault in faults]
    command = f"python -m everstep.bench.demo {'--full' if options.full else '--quick'} --seed {options.seed}"
    result = BenchResult(
        bench="demo",
        ok=all(not one.missed for one in rows),
        label=Label.REAL,
        seed=options.seed,
        measures={one.fault.value: _measures(one) for one in rows},
        goals={one.fault.value: "met" if not one.missed else list(one.missed) for one in rows},
        rivals={f"cold restart, {one.fault.value}": _spread(one.cold_back) for one in rows if one.cold_back},
    )
    return finish(result, page(rows, f"{command} --runs {num_runs} --cold-runs {num_cold}"))


def _of(fault: DemoFault, runs: Sequence[Run]) -> Sequence[Run]:
    return [run for run in runs if run["fault"] == fault.value]


def _measures(one: Row) -> dict[str, Any]:
    return {
        "runs": one.num_runs,
        "ok": one.num_ok,
        "right_culprit_first": one.num_right,
        "found_s": _spread(one.found),
        "back_s": _spread(one.back),
        "detect_steps": max(one.detect_steps, default=None),
        "lost_steps": one.lost_steps,
        "false_incidents": one.false_incidents,
    }


def _spread(values: tuple[float, ...]) -> dict[str, float] | None:
    return {"median": round(median(values), 3), "worst": round(max(values), 3)} if values else None


if __name__ == "__main__":
    sys.exit(main())
