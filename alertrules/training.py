"""Alerts on the training job: progress, numerics, ranks, restarts, checkpoints."""

from __future__ import annotations

from everstep.alertrules.recording import PEERS_OF
from everstep.alertrules.rule import Alert, Group
from everstep.core.actions import ActionKind

_COMPUTE = PEERS_OF["everstep_train_step_compute_seconds"]
_JOB = "{{ $labels.train_job }}"
_RANK = "Rank {{ $labels.rank }} of {{ $labels.train_job }}"

PROGRESS = (
    Alert(
        name="TrainStalled",
        component="training",
        fault="F25",
        expr="""
        train_job:everstep_train_last_step_age:seconds > 60
        unless train_job:everstep_train_last_step_age:seconds
          <= 10 * train_job:everstep_train_step_duration_seconds:median30m
        """,
        summary=_JOB + " has made no step for {{ $value | humanizeDuration }}",
        description="Older than a minute and than ten times the job's median step. Collect stacks before restarting.",
    ),
    Alert(
        name="TrainRankBehind",
        component="training",
        fault="F25",
        expr="""
        (
          max by (cluster, train_job) (everstep_train_collective_sequence)
          - on (cluster, train_job) group_right ()
          max by (cluster, train_job, rank) (everstep_train_collective_sequence)
        ) > 0
        and on (cluster, train_job) train_job:everstep_train_last_step_age:seconds > 30
        """,
        hold="15s",
        summary=_RANK + " is {{ $value }} collectives behind",
        description="The others wait in a collective that this rank never entered.",
    ),
    Alert(
        name="TrainNoFirstStep",
        component="training",
        fault="F26",
        expr='max by (cluster, train_job) (everstep_train_state{state="init"}) == 1',
        hold="15m",
        summary=_JOB + " is still starting after 15 minutes",
        description="The deadline runs from the start of the job, not from its first step.",
    ),
    Alert(
        name="TrainRestartLoop",
        component="training",
        fault="F26",
        action=ActionKind.PAGE_HUMAN,
        expr="sum by (cluster, train_job) (increase(everstep_train_restarts_total[30m])) > 3",
        summary=_JOB + " restarts again and again",
        description="{{ $value | humanize }} restarts in 30 minutes: restarting does not help.",
    ),
    Alert(
        name="WorkerExited",
        component="training",
        fault="SOFTWARE",
        expr="""
        max by (cluster, node, train_job, rank) (everstep_worker_state{state=~"exited|killed"}) == 1
        unless on (cluster, train_job, rank)
        everstep_worker_exit_reason{reason=~"success|stopped_by_agent|peer_lost"} == 1
        """,
        summary=_RANK + " ended on {{ $labels.node }}",
        description="The worker process is gone, and it is not a victim of another rank.",
    ),
    Alert(
        name="WorkerStopped",
        component="training",
        fault="F25",
        expr='max by (cluster, node, train_job, rank) (everstep_worker_state{state="stopped"}) == 1',
        summary=_RANK + " is stopped on {{ $labels.node }}",
        description="The kernel shows the process as stopped (a signal or a debugger); all other ranks wait for it.",
    ),
)

NUMERICS = (
    Alert(
        name="TrainLossNotFinite",
        component="training",
        fault="F28",
        expr="""
        count by (cluster, train_job) (
          everstep_train_loss != everstep_train_loss
          or abs(everstep_train_loss) == Inf
          or increase(everstep_train_nonfinite_steps_total[2m]) > 0
        )
        """,
        summary="Loss or gradient of " + _JOB + " is NaN or infinite",
        description="Resume from a checkpoint before the batch and leave the batch out.",
    ),
    Alert(
        name="TrainLossScaleCollapse",
        component="training",
        fault="F28",
        severity="warning",
        expr="""
        max by (cluster, train_job) (everstep_train_loss_scale)
        < 0.1 * max by (cluster, train_job) (max_over_time(everstep_train_loss_scale[10m]))
        """,
        summary="The loss scale of " + _JOB + " collapses",
        description="Repeated halving; NaN follows unless the overflow stops.",
    ),
    Alert(
        name="TrainGradientSpike",
        component="training",
        fault="F27",
        expr="""
        max by (cluster, train_job) (everstep_train_gradient_norm)
        > 10 * max by (cluster, train_job) (quantile_over_time(0.5, everstep_train_gradient_norm[30m]))
        """,
        hold="1m",
        keep="2m",
        summary="Gradient norm of " + _JOB + " is {{ $value | humanize }}",
        description="Over ten times its half-hour median. Watch 50 steps: many spikes recover by themselves.",
    ),
    Alert(
        name="TrainRateJumpAtRestart",
        component="training",
        fault="F29",
        expr="""
        max by (cluster, train_job) (changes(everstep_train_attempt[10m])) > 0
        and on (cluster, train_job)
        abs(
          max by (cluster, train_job) (everstep_train_learning_rate)
          / max by (cluster, train_job) (everstep_train_learning_rate offset 10m)
          - 1
        ) > 0.5
        """,
        summary="Learning rate of " + _JOB + " jumped at a restart",
        description="The schedule was not restored with the checkpoint; another rollback repeats the defect.",
    ),
    Alert(
        name="TrainReplicaMismatch",
        component="training",
        fault="F30",
        severity="critical",
        expr="increase(everstep_train_replica_checksum_mismatches_total[5m]) > 0",
        summary=_RANK + " holds other parameters than its replicas",
        description="Replay to confirm, then isolate the node and roll back to before the onset.",
    ),
)

SPEED = (
    Alert(
        name="TrainSlowRank",
        component="training",
        fault="F12",
        expr=f"""
        {_COMPUTE.score_record} > 6
        and {_COMPUTE.member_record} > on (cluster, train_job) group_left () (1.25 * {_COMPUTE.median_record})
        """,
        hold="1m",
        summary=_RANK + " computes slower than its peers",
        description="{{ $value | humanize }} robust deviations above the job's median. Confirm before isolating.",
    ),
    Alert(
        name="TrainDataStall",
        component="training",
        fault="F20",
        expr="""
        avg by (cluster, train_job) (rank:everstep_train_phase_seconds:rate2m{phase="data"}) > 0.3
        """,
        hold="5m",
        summary=_JOB + " waits {{ $value | humanizePercentage }} of its time for data",
        description="The loader or its storage is too slow; GPUs and nodes are not at fault.",
    ),
    Alert(
        name="TrainCpuContention",
        component="training",
        fault="F19",
        expr="""
        node:everstep_pressure_stalled:rate2m{resource="cpu",kind="some"} > 0.5
        """,
        hold="5m",
        summary="Tasks of {{ $labels.node }} wait {{ $value | humanizePercentage }} of the time for a CPU",
        description="A neighbour or garbage collection takes the CPUs that the ranks need.",
    ),
)

CHECKPOINTS = (
    Alert(
        name="CheckpointOld",
        component="training",
        fault="F22",
        severity="warning",
        expr="time() - max by (cluster, train_job) (everstep_checkpoint_last_success_timestamp_seconds > 0) > 7200",
        summary="Newest verified checkpoint of " + _JOB + " is {{ $value | humanizeDuration }} old",
        description="A fault now costs at least this much work.",
    ),
    Alert(
        name="CheckpointSaveFailing",
        component="training",
        fault="F22",
        severity="warning",
        expr="""
        sum by (cluster, train_job, tier) (
          increase(everstep_checkpoint_duration_seconds_count{op="save",outcome!="success"}[15m])
        ) > 0
        """,
        summary="Checkpoint saves of " + _JOB + " to {{ $labels.tier }} fail",
        description="An unfinished save is not a checkpoint; the last verified one stays the resume point.",
    ),
    Alert(
        name="CheckpointLoadFailing",
        component="training",
        fault="F23",
        expr="""
        sum by (cluster, train_job, tier) (
          increase(everstep_checkpoint_duration_seconds_count{op="load",outcome!="success"}[15m])
        ) > 0
        """,
        summary="A checkpoint of " + _JOB + " in {{ $labels.tier }} cannot be read",
        description="Use the previous good copy; do not read the same file again, do not delete any copy.",
    ),
)

GROUPS = (Group(name="everstep-training", rules=(*PROGRESS, *NUMERICS, *SPEED, *CHECKPOINTS)),)
