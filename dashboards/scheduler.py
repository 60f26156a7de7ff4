"""Queues, capacity, and what became of every GPU-second."""

from __future__ import annotations

from everstep.dashboards.board import Board, Kind, Panel, Query, Unit, floors, limits

BOARD = Board(
    uid="everstep-scheduler-goodput",
    title="Everstep / Scheduler and goodput",
    description="Queues, capacity, and what became of every GPU-second.",
    panels=(
        Panel(
            title="Goodput",
            description="Productive share over one hour, by job.",
            unit=Unit.RATIO,
            queries=(Query(expr="train_job:everstep_goodput:ratio1h{@job}", legend="{{train_job}}"),),
            width=12,
            thresholds=floors(red=0.8, orange=0.95),
            low=0,
            high=1,
        ),
        Panel(
            title="Goodput over windows",
            description="The windows of the burn-rate alerts.",
            unit=Unit.RATIO,
            queries=(
                Query(expr="train_job:everstep_goodput:ratio5m{@job}", legend="{{train_job}} 5m"),
                Query(expr="train_job:everstep_goodput:ratio6h{@job}", legend="{{train_job}} 6h"),
                Query(expr="train_job:everstep_goodput:ratio1d{@job}", legend="{{train_job}} 1d"),
                Query(expr="train_job:everstep_goodput:ratio3d{@job}", legend="{{train_job}} 3d"),
            ),
            width=12,
            thresholds=floors(red=0.8, orange=0.95),
            low=0,
            high=1,
        ),
        Panel(
            title="GPU-seconds by class",
            description="Lost time by its reason.",
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
            title="GPUs by state",
            description="Allocated, idle, fragmented, isolated, lost.",
            unit=Unit.SHORT,
            queries=(Query(expr="max by (state) (everstep_cluster_gpus{@cluster})", legend="{{state}}"),),
            width=12,
            low=0,
            stacked=True,
        ),
        Panel(
            title="Queue wait, p95",
            description="Time from submission to start, by queue.",
            unit=Unit.SECONDS,
            queries=(Query(expr="queue:everstep_queue_wait_seconds:p95{@cluster}", legend="{{queue}}"),),
            thresholds=limits(orange=1800, red=3600),
            low=0,
        ),
        Panel(
            title="Starts",
            description="Jobs started an hour, by queue and priority.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (queue, priority) (increase(everstep_queue_wait_seconds_count{@cluster}[1h]))",
                    legend="{{queue}} {{priority}}",
                ),
            ),
            low=0,
        ),
        Panel(
            title="Wait distribution",
            description="All queues.",
            unit=Unit.SECONDS,
            queries=(
                Query(expr="sum by (le) (increase(everstep_queue_wait_seconds_bucket{@cluster}[1h]))", legend="{{le}}"),
            ),
            kind=Kind.HEATMAP,
        ),
    ),
)
