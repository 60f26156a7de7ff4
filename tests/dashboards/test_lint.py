"""Our own lint of the generated dashboards: what Grafana would accept in silence and people would stumble over."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from everstep.core.metrics import CORE_METRICS, METRIC_BY_NAME, MetricKind
from everstep.dashboards.__main__ import main
from everstep.dashboards.board import Unit
from everstep.dashboards.build import BOARDS, JSON, files, stale, write

ROOT = Path(__file__).parents[2]
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(JSON.glob("*.json"))
}
PANELS = [(uid, panel) for uid, dashboard in DASHBOARDS.items() for panel in dashboard["panels"]]
QUERIES = [(uid, panel, target["expr"]) for uid, panel in PANELS for target in panel["targets"]]
RECORDS = {
    rule["record"]
    for group in yaml.safe_load((ROOT / "alertrules/generated/recording.yml").read_text())["groups"]
    for rule in group["rules"]
}
each_board = pytest.mark.parametrize("uid", DASHBOARDS)
each_panel = pytest.mark.parametrize(("uid", "panel"), PANELS, ids=[f"{uid}-{panel['title']}" for uid, panel in PANELS])


def _names(expr: str) -> set[str]:
    """Metric and record names of an expression: whatever starts like ours, outside of strings."""
    bare = re.sub(r'"[^"]*"', "", expr)
    return set(re.findall(r"\b(?:[a-z_]+:)?everstep_\w+(?::\w+)*", bare))


def _base(name: str) -> str:
    if name in METRIC_BY_NAME:
        return name
    return re.sub(r"_(bucket|sum|count)$", "", name)


def test_generated_files_are_fresh() -> None:
    assert stale() == (), "run python -m everstep.dashboards --write"


def test_command_line_writes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--output", str(tmp_path)]) == 1
    assert "run `python -m everstep.dashboards --write`" in capsys.readouterr().err
    assert main(["--write", "--output", str(tmp_path)]) == 0
    assert main(["--check", "--output", str(tmp_path)]) == 0


def test_a_changed_or_foreign_file_is_stale(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "everstep-self.json").write_text("{}")
    (tmp_path / "old.json").write_text("{}")
    assert stale(tmp_path) == ("everstep-self.json", "old.json")


@each_board
def test_survives_the_round_trip_through_the_sdk(uid: str) -> None:
    register_default_plugins()
    again = json.dumps(Dashboard.from_json(json.loads(files()[f"{uid}.json"])), cls=JSONEncoder)
    assert json.loads(again) == DASHBOARDS[uid]


def test_the_eight_boards_have_their_own_uids_and_titles() -> None:
    assert len(BOARDS) == 8
    assert len({board.uid for board in BOARDS}) == 8
    assert len({board.title for board in BOARDS}) == 8
    assert all(uid == dashboard["uid"] for uid, dashboard in DASHBOARDS.items())


def test_alert_rules_link_to_boards_that_exist() -> None:
    linked = set()
    for path in (ROOT / "alertrules/generated").glob("*.yml"):
        linked |= set(re.findall(r"dashboard_url: /d/([\w-]+)", path.read_text()))
    assert linked
    assert linked <= set(DASHBOARDS)


@each_board
def test_variables(uid: str) -> None:
    variables = {variable["name"]: variable for variable in DASHBOARDS[uid]["templating"]["list"]}
    assert list(variables) == ["datasource", "cluster", "job", "node"]
    for name in ("cluster", "job", "node"):
        assert variables[name]["refresh"] == 2, "reload when the time range changes"
        assert variables[name]["includeAll"]
        assert variables[name]["datasource"]["uid"] == "$datasource"


@each_board
def test_boards_are_linked_and_annotated(uid: str) -> None:
    dashboard = DASHBOARDS[uid]
    assert dashboard["tags"] == ["everstep"]
    assert dashboard["editable"] is False
    (link,) = dashboard["links"]
    assert (link["type"], link["tags"]) == ("dashboards", ["everstep"])
    assert link["includeVars"]
    assert link["keepTime"]
    assert [annotation["name"] for annotation in dashboard["annotations"]["list"]] == ["Restart", "Critical alert"]


@each_board
def test_panels_fit_and_do_not_overlap(uid: str) -> None:
    panels = DASHBOARDS[uid]["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


@each_board
def test_titles_are_unique(uid: str) -> None:
    titles = [panel["title"] for panel in DASHBOARDS[uid]["panels"]]
    assert len(set(titles)) == len(titles)


@each_panel
def test_panel_is_whole(uid: str, panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["datasource"] == {"type": "prometheus", "uid": "$datasource"}
    assert defaults["unit"] in set(Unit)
    assert defaults["thresholds"]["steps"][0]["value"] is None
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"]
        assert target["refId"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize(("uid", "panel", "expr"), QUERIES, ids=[f"{uid}-{p['title']}" for uid, p, _ in QUERIES])
def test_query(uid: str, panel: dict[str, Any], expr: str) -> None:
    assert "@" not in expr, "a selector was not expanded"
    names = _names(expr)
    assert names or "ALERTS" in expr or "up{" in expr
    for name in names:
        assert _base(name) in METRIC_BY_NAME or name in RECORDS, f"{name} is neither a metric nor a recording rule"
    if not any("rca_" in name for name in names):
        assert 'cluster=~"$cluster"' in expr
    for name in names:
        metric = METRIC_BY_NAME.get(_base(name))
        if metric and metric.kind is MetricKind.COUNTER and name == metric.name and "steps_total{" not in expr:
            assert re.search(r"\b(rate|increase)\(" + name, expr), f"{name} is a counter: use rate or increase"


def test_every_core_metric_is_on_a_board() -> None:
    shown = " ".join(expr for _, _, expr in QUERIES)
    missing = [metric.name for metric in CORE_METRICS if metric.name.removesuffix("_total") not in shown]
    assert not missing
