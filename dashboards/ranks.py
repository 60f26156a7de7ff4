"""Which rank holds the job back: compute, waiting, progress, placement."""

from __future__ import annotations

from everstep.dashboards.board import Board, Kind, Panel, Query, Unit, limits

BOARD = Board(
    uid="everstep-ranks",
    title="Everstep / Ranks and stragglers",
    description="Which rank holds the job back: compute, waiting, progress, placement.",
    panels=(
        Panel(
            title="Compute time by rank",
            description="Rank-local compute of a step, waiting excluded. The straggler stands above.",
            unit=Unit.SECONDS,
            queries=(Query(expr="rank:everstep_train_step_compute_seconds:median2m{@job}", legend="rank {{rank}}"),),
            width=12,
            low=0,
        ),
        Panel(
            title="Peer score",
            description="Robust deviations of a rank's compute time from the job's median; 6 is the alert's limit.",
            unit=Unit.NONE,
            queries=(Query(expr="rank:everstep_train_step_compute_seconds:peer_score{@job}", legend="rank {{rank}}"),),
            width=12,
            thresholds=limits(orange=3, red=6),
        ),
        Panel(
            title="Collective share by rank",
            description="The straggler is the rank with the least.",
            unit=Unit.RATIO,
            queries=(
                Query(expr='rank:everstep_train_phase_seconds:rate2m{phase="collective",@job}', legend="rank {{rank}}"),
            ),
            width=12,
            low=0,
            high=1,
        ),
        Panel(
            title="Phases",
            description="Average over the ranks.",
            unit=Unit.RATIO,
            queries=(
                Query(expr="avg by (phase) (rank:everstep_train_phase_seconds:rate2m{@job})", legend="{{phase}}"),
            ),
            width=12,
            low=0,
            stacked=True,
        ),
        Panel(
            title="Steps behind the furthest rank",
            description="Above zero for long: this rank is the one the others wait for, or its record is not read.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="""
                    max by (train_job) (everstep_train_steps_total{@job}) - on (train_job) group_right
                    () max by (train_job, rank) (everstep_train_steps_total{@job})
                    """,
                    legend="rank {{rank}}",
                ),
            ),
            thresholds=limits(orange=1, red=3),
            low=0,
        ),
        Panel(
            title="Collectives behind",
            description="Lag in the sequence of collectives while the job stands.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="""
                    max by (train_job) (everstep_train_collective_sequence{@job}) - on (train_job)
                    group_right () max by (train_job, rank) (everstep_train_collective_sequence{@job})
                    """,
                    legend="rank {{rank}}",
                ),
            ),
            thresholds=limits(orange=1, red=2),
            low=0,
        ),
        Panel(
            title="Age of the last step by rank",
            description="Which rank stopped first.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="""
                    time() - max by (train_job, rank) (everstep_train_last_step_timestamp_seconds{@job}
                    > 0)
                    """,
                    legend="rank {{rank}}",
                ),
            ),
            thresholds=limits(orange=30, red=60),
            low=0,
        ),
        Panel(
            title="Worker state",
            description="State of each worker process as the kernel shows it.",
            unit=Unit.NONE,
            queries=(
                Query(expr="max by (rank, state) (everstep_worker_state{@job} == 1)", legend="rank {{rank}} {{state}}"),
            ),
            kind=Kind.TIMELINE,
            width=12,
        ),
        Panel(
            title="Step time distribution",
            description="All ranks; a second hump is a stall that comes and goes.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="""
                    sum by (le)
                    (increase(everstep_train_step_duration_seconds_bucket{@job}[$__rate_interval]))
                    """,
                    legend="{{le}}",
                ),
            ),
            kind=Kind.HEATMAP,
            width=12,
        ),
        Panel(
            title="Placement",
            description="Where each rank runs.",
            unit=Unit.NONE,
            queries=(
                Query(
                    expr="""
                    max by (train_job, rank, local_rank, node, gpu, uuid)
                    (everstep_train_rank_info{@job})
                    """
                ),
            ),
            kind=Kind.TABLE,
            width=12,
        ),
        Panel(
            title="Allocator",
            description="Memory held by the framework; reserved that grows while allocated is flat is fragmentation.",
            unit=Unit.BYTES,
            queries=(
                Query(
                    expr="max by (rank, kind) (everstep_gpu_memory_allocated_bytes{@job})",
                    legend="rank {{rank}} {{kind}}",
                ),
            ),
            width=12,
            low=0,
        ),
    ),
)
