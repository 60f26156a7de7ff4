"""All jobs and GPUs of a cluster at a glance."""

from __future__ import annotations

from everstep.dashboards.board import Board, Kind, Panel, Query, Unit, floors, limits

BOARD = Board(
    uid="everstep-cluster",
    title="Everstep / Cluster overview",
    description="All jobs and GPUs of a cluster at a glance.",
    panels=(
        Panel(
            title="GPUs by state",
            description="Allocated, idle, fragmented, isolated and lost; the states sum to the total.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (state) (max by (cluster, state) (everstep_cluster_gpus{@cluster}))",
                    legend="{{state}}",
                    instant=True,
                ),
            ),
            kind=Kind.STAT,
            width=12,
            height=5,
        ),
        Panel(
            title="GPUs missing",
            description="Expected minus present over all nodes; a GPU that fell off the bus shows here first.",
            unit=Unit.SHORT,
            queries=(Query(expr="sum(node:everstep_gpus_missing:count{@cluster})", legend="missing", instant=True),),
            kind=Kind.STAT,
            width=4,
            height=5,
            thresholds=limits(orange=1, red=2),
        ),
        Panel(
            title="Nodes heard",
            description="Nodes whose agent the service hears.",
            unit=Unit.SHORT,
            queries=(Query(expr="sum(everstep_agent_up{@cluster})", legend="up", instant=True),),
            kind=Kind.STAT,
            width=4,
            height=5,
            thresholds=floors(red=1, orange=2),
        ),
        Panel(
            title="Goodput, 1 h",
            description="Productive share of all GPU time of the cluster's jobs.",
            unit=Unit.RATIO,
            queries=(Query(expr="avg(train_job:everstep_goodput:ratio1h{@cluster})", legend="goodput", instant=True),),
            kind=Kind.STAT,
            width=4,
            height=5,
            thresholds=floors(red=0.8, orange=0.95),
            low=0,
            high=1,
        ),
        Panel(
            title="Firing alerts",
            description="What fires now, with fault and first action.",
            unit=Unit.NONE,
            queries=(
                Query(
                    expr="""
                    count by (alertname, severity, fault, action, train_job, node)
                    (ALERTS{alertstate="firing",severity!="none",@cluster})
                    """
                ),
            ),
            kind=Kind.TABLE,
            width=24,
            height=7,
            renamed=(("Value", "count"),),
        ),
        Panel(
            title="Throughput by job",
            description="Tokens a second.",
            unit=Unit.OPS,
            queries=(Query(expr="train_job:everstep_train_tokens:rate2m{@job}", legend="{{train_job}}"),),
            width=12,
        ),
        Panel(
            title="Age of the last step",
            description="A job that stands rises without bound.",
            unit=Unit.SECONDS,
            queries=(Query(expr="train_job:everstep_train_last_step_age:seconds{@job}", legend="{{train_job}}"),),
            width=12,
            thresholds=limits(orange=30, red=60),
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
            title="Power",
            description="Draw of all GPUs.",
            unit=Unit.WATTS,
            queries=(Query(expr="sum by (cluster) (everstep_gpu_power_watts{@node})", legend="{{cluster}}"),),
            low=0,
        ),
        Panel(
            title="GPU utilisation, median and lowest",
            description="Lowest tenth falls away when ranks wait.",
            unit=Unit.RATIO,
            queries=(
                Query(expr='quantile(0.5, everstep_gpu_utilization_ratio{engine="sm",@node})', legend="median"),
                Query(expr='quantile(0.1, everstep_gpu_utilization_ratio{engine="sm",@node})', legend="lowest tenth"),
            ),
            low=0,
            high=1,
        ),
    ),
)
