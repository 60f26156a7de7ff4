"""From a board to Grafana's JSON, through grafana-foundation-sdk; ids and positions are stable, so files compare."""

from __future__ import annotations

import json
from collections.abc import Callable

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    nodegraph,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from everstep.dashboards.board import Board, Kind, Panel, Place, Query, layout

TAG = "everstep"
DATASOURCE = common_models.DataSourceRef(type_val="prometheus", uid="$datasource")

_LEGEND = (
    common.VizLegendOptions()
    .show_legend(True)
    .display_mode(common_models.LegendDisplayMode.LIST)
    .placement(common_models.LegendPlacement.BOTTOM)
)
_TOOLTIP = common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI)
_NEWEST = common.ReduceDataOptions().calcs(["lastNotNull"])

_Builder = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel | statetimeline.Panel | nodegraph.Panel
_BUILDERS: dict[Kind, Callable[[], _Builder]] = {
    Kind.TIMESERIES: timeseries.Panel,
    Kind.STAT: stat.Panel,
    Kind.TABLE: table.Panel,
    Kind.HEATMAP: heatmap.Panel,
    Kind.TIMELINE: statetimeline.Panel,
    Kind.NODE_GRAPH: nodegraph.Panel,
}


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value=value, color=color) for value, color in panel.thresholds]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _target(query: Query, panel: Panel, index: int) -> prometheus.Dataquery:
    graph = panel.kind is Kind.NODE_GRAPH
    target = (
        prometheus.Dataquery()
        .datasource(DATASOURCE)
        .expr(query.promql)
        .ref_id(("nodes", "edges")[index] if graph else chr(ord("A") + index))
        .legend_format(query.legend or "__auto")
    )
    newest = query.instant or panel.kind in {Kind.TABLE, Kind.NODE_GRAPH}
    target = target.instant() if newest else target.range()
    if panel.kind in {Kind.TABLE, Kind.NODE_GRAPH}:
        target = target.format(prometheus_models.PromQueryFormat.TABLE)
    if panel.kind is Kind.HEATMAP:
        target = target.format(prometheus_models.PromQueryFormat.HEATMAP)
    return target


def _transformations(panel: Panel) -> list[models.DataTransformerConfig]:
    """Tables lose the time column and get readable names; node graphs need the value as `mainstat`."""
    if panel.kind not in {Kind.TABLE, Kind.NODE_GRAPH}:
        return []
    names = {"Value": "mainstat"} if panel.kind is Kind.NODE_GRAPH else dict(panel.renamed)
    options = {"excludeByName": {"Time": True, "__name__": True}, "renameByName": names}
    merge = [models.DataTransformerConfig(id_val="merge", options={})] if len(panel.queries) > 1 else []
    organize = models.DataTransformerConfig(id_val="organize", options=options)
    return [organize] if panel.kind is Kind.NODE_GRAPH else [*merge, organize]


def _panel(panel: Panel, place: Place, number: int) -> _Builder:
    builder = (
        _BUILDERS[panel.kind]()
        .id(number)
        .title(panel.title)
        .description(panel.description)
        .datasource(DATASOURCE)
        .unit(panel.unit.value)
        .thresholds(_thresholds(panel))
        .grid_pos(models.GridPos(h=place.height, w=place.width, x=place.x, y=place.y))
        .transformations(_transformations(panel))
    )
    for index, query in enumerate(panel.queries):
        builder = builder.with_target(_target(query, panel, index))
    if panel.low is not None:
        builder = builder.min(panel.low)
    if panel.high is not None:
        builder = builder.max(panel.high)
    return _styled(builder, panel)


def _styled(builder: _Builder, panel: Panel) -> _Builder:
    if isinstance(builder, timeseries.Panel):
        builder = builder.line_width(1).fill_opacity(30 if panel.stacked else 0).legend(_LEGEND).tooltip(_TOOLTIP)
        if panel.stacked:
            builder = builder.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
        if len(panel.thresholds) > 1:
            dashed = common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
            builder = builder.thresholds_style(dashed)
    if isinstance(builder, stat.Panel):
        builder = builder.color_mode(common_models.BigValueColorMode.BACKGROUND).reduce_options(_NEWEST)
    if isinstance(builder, statetimeline.Panel):
        builder = builder.legend(_LEGEND).tooltip(_TOOLTIP)
    return builder


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _annotation(name: str, color: str, expr: str, text: str) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(color)
        .expr(Query(expr=expr).promql)
        .title_format(name)
        .text_format(text)
    )


def build(board: Board) -> models.Dashboard:
    """Raises nothing: a board that Grafana would not take fails in the lint, not here."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("10s")
        .link(
            dashboard.DashboardLink("Everstep")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("cluster", "Cluster", "label_values(up, cluster)"))
        .with_variable(
            _variable("job", "Job", 'label_values(everstep_train_rank_info{cluster=~"$cluster"}, train_job)')
        )
        .with_variable(_variable("node", "Node", 'label_values(up{cluster=~"$cluster"}, node)'))
        .annotation(
            _annotation(
                "Restart", "blue", "changes(everstep_train_attempt{@job}[1m]) > 0", "{{train_job}}: new attempt"
            )
        )
        .annotation(
            _annotation(
                "Critical alert",
                "red",
                'ALERTS{alertstate="firing",severity="critical",@cluster}',
                "{{alertname}} {{train_job}} {{node}} ({{fault}})",
            )
        )
    )
    for number, (panel, place) in enumerate(zip(board.panels, layout(board.panels), strict=True), 1):
        builder = builder.with_panel(_panel(panel, place, number))
    return builder.build()


def to_json(board: Board) -> str:
    return json.dumps(build(board), cls=JSONEncoder, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
