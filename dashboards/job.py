"""Progress, numerics, checkpoints and restarts of a job, with learned bands."""

from __future__ import annotations

from everstep.dashboards.board import Board, Kind, Panel, Query, Unit, floors, limits

BOARD = Board(
    uid="everstep-training-job",
    title="Everstep / Training job",
    description="Progress, numerics, checkpoints and restarts of a job, with learned bands.",
    panels=(
        Panel(
            title="Steps",
            description="Steps finished by the furthest rank.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="max by (train_job) (everstep_train_steps_total{@job})", legend="{{train_job}}", instant=True
                ),
            ),
            kind=Kind.STAT,
            width=4,
            height=5,
        ),
        Panel(
            title="Last step",
            description="When any rank finished a step.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="train_job:everstep_train_last_step_age:seconds{@job}", legend="{{train_job}}", instant=True
                ),
            ),
            kind=Kind.STAT,
            width=4,
            height=5,
            thresholds=limits(orange=30, red=60),
        ),
        Panel(
            title="Attempt",
            description="Number of the running attempt.",
            unit=Unit.SHORT,
            queries=(
                Query(expr="max by (train_job) (everstep_train_attempt{@job})", legend="{{train_job}}", instant=True),
            ),
            kind=Kind.STAT,
            width=4,
            height=5,
        ),
        Panel(
            title="Restarts, 1 d",
            description="Restarts by cause in a day.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (cause) (increase(everstep_train_restarts_total{@job}[1d]))",
                    legend="{{cause}}",
                    instant=True,
                ),
            ),
            kind=Kind.STAT,
            width=4,
            height=5,
            thresholds=limits(orange=2, red=5),
        ),
        Panel(
            title="Newest checkpoint",
            description="Age of the newest verified checkpoint by tier.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="""
                    time() - max by (tier) (everstep_checkpoint_last_success_timestamp_seconds{@job} >
                    0)
                    """,
                    legend="{{tier}}",
                    instant=True,
                ),
            ),
            kind=Kind.STAT,
            width=4,
            height=5,
            thresholds=limits(orange=1800, red=7200),
        ),
        Panel(
            title="Goodput, 1 h",
            description="Productive share of GPU time.",
            unit=Unit.RATIO,
            queries=(Query(expr="train_job:everstep_goodput:ratio1h{@job}", legend="{{train_job}}", instant=True),),
            kind=Kind.STAT,
            width=4,
            height=5,
            thresholds=floors(red=0.8, orange=0.95),
            low=0,
            high=1,
        ),
        Panel(
            title="Loss",
            description="Loss of each step with its learned band.",
            unit=Unit.NONE,
            queries=(
                Query(expr="everstep_train_loss{@job}", legend="{{train_job}}"),
                Query(expr='everstep_baseline_lower{metric="everstep_train_loss",@job}', legend="{{train_job}} lower"),
                Query(expr='everstep_baseline_upper{metric="everstep_train_loss",@job}', legend="{{train_job}} upper"),
            ),
            width=12,
        ),
        Panel(
            title="Gradient norm",
            description="Before clipping, with its learned band.",
            unit=Unit.NONE,
            queries=(
                Query(expr="everstep_train_gradient_norm{@job}", legend="{{train_job}}"),
                Query(
                    expr='everstep_baseline_upper{metric="everstep_train_gradient_norm",@job}',
                    legend="{{train_job}} upper",
                ),
            ),
            width=12,
            low=0,
        ),
        Panel(
            title="Learning rate",
            description="A jump at a restart mark is a schedule that was not restored.",
            unit=Unit.NONE,
            queries=(Query(expr="everstep_train_learning_rate{@job}", legend="{{train_job}}"),),
            low=0,
        ),
        Panel(
            title="Update norm and loss scale",
            description="Both lead the loss when numerics go wrong.",
            unit=Unit.NONE,
            queries=(
                Query(expr="everstep_train_update_norm{@job}", legend="update norm"),
                Query(expr="everstep_train_loss_scale{@job}", legend="loss scale"),
            ),
        ),
        Panel(
            title="Non-finite and skipped steps",
            description="Steps whose loss or gradient was NaN or infinite, and steps left out.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="""
                    sum by (train_job)
                    (increase(everstep_train_nonfinite_steps_total{@job}[$__rate_interval]))
                    """,
                    legend="non-finite",
                ),
                Query(
                    expr="""
                    sum by (train_job)
                    (increase(everstep_train_skipped_steps_total{@job}[$__rate_interval]))
                    """,
                    legend="skipped",
                ),
            ),
            thresholds=limits(orange=1, red=2),
            low=0,
        ),
        Panel(
            title="Step time",
            description="Median over half an hour and 99th percentile over five minutes.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="train_job:everstep_train_step_duration_seconds:median30m{@job}", legend="{{train_job}} median"
                ),
                Query(expr="train_job:everstep_train_step_duration_seconds:p99{@job}", legend="{{train_job}} p99"),
            ),
            low=0,
        ),
        Panel(
            title="Throughput",
            description="Tokens a second.",
            unit=Unit.OPS,
            queries=(Query(expr="train_job:everstep_train_tokens:rate2m{@job}", legend="{{train_job}}"),),
            low=0,
        ),
        Panel(
            title="Model FLOPs utilisation",
            description="Share of the peak that goes into the model.",
            unit=Unit.RATIO,
            queries=(Query(expr="everstep_train_model_flops_utilization_ratio{@job}", legend="{{train_job}}"),),
            thresholds=floors(red=0.2, orange=0.35),
            low=0,
            high=1,
        ),
        Panel(
            title="Where GPU time goes",
            description="Every GPU-second in exactly one class.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (class) (rate(everstep_gpu_seconds_total{@job}[$__rate_interval]))", legend="{{class}}"
                ),
            ),
            width=12,
            low=0,
            stacked=True,
        ),
        Panel(
            title="Checkpoint time",
            description="Average time of saves and loads by tier.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="""
                    sum by (tier, op) (rate(everstep_checkpoint_duration_seconds_sum{@job}[10m])) / (sum
                    by (tier, op) (rate(everstep_checkpoint_duration_seconds_count{@job}[10m])) > 0)
                    """,
                    legend="{{op}} {{tier}}",
                ),
            ),
            width=12,
            low=0,
        ),
    ),
)
