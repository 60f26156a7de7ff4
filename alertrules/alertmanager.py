"""Alertmanager's routes and inhibitions: one cause, one page; the service gets everything, people get pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SERVICE_URL = "http://service:9800"
TOKEN_FILE = "/run/secrets/everstep_token"  # noqa: S105 -- a path, not a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Inhibition:
    """While an alert that matches `source` fires, alerts that match `target` and agree in `equal` stay silent."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]

    def to_yaml(self) -> dict[str, list[str]]:
        return {
            "source_matchers": list(self.source),
            "target_matchers": list(self.target),
            "equal": list(self.equal),
        }


_NODE = ("cluster", "node")
_JOB = ("cluster", "train_job")

INHIBITIONS: tuple[Inhibition, ...] = (
    # A node that is down explains whatever its GPUs, ranks and exporters say.
    Inhibition(source=('alertname="NodeDown"',), target=('alertname!="NodeDown"', 'node!=""'), equal=_NODE),
    # A missing GPU explains its own last words.
    Inhibition(
        source=('alertname="GpuMissing"',),
        target=('alertname=~"GpuDown|GpuSamplesFrozen|GpuPcie.+|XidGpuLost|XidUnknown"',),
        equal=_NODE,
    ),
    # Hardware codes of a node explain the application codes beside them.
    Inhibition(
        source=('alertname=~"Xid.+"', 'severity="critical"'),
        target=('alertname=~"XidApplicationError|XidUnknown"',),
        equal=_NODE,
    ),
    # A switch explains the links behind it, a flap the single loss of link.
    Inhibition(
        source=('alertname="SwitchFailure"',),
        target=('alertname=~"NicLink.+|RailSilent|FabricDiscards"',),
        equal=("cluster", "rack"),
    ),
    Inhibition(
        source=('alertname="NicLinkFlapping"',),
        target=('alertname="NicLinkDown"',),
        equal=("cluster", "node", "device", "port"),
    ),
    # A named culprit explains why its job stands.
    Inhibition(
        source=('alertname=~"WorkerExited|WorkerStopped|TrainRankBehind"',),
        target=('alertname="TrainStalled"',),
        equal=_JOB,
    ),
    Inhibition(
        source=('alertname="TrainLossNotFinite"',),
        target=('alertname=~"TrainGradientSpike|TrainLossScaleCollapse"',),
        equal=_JOB,
    ),
    Inhibition(source=('alertname="TrainStalled"',), target=('alertname=~"TrainSlowRank|TrainDataStall"',), equal=_JOB),
    # A full or stalled file system explains the saves that fail.
    Inhibition(
        source=('alertname="FilesystemFull"',),
        target=('alertname="FilesystemFilling"',),
        equal=("cluster", "node", "target", "kind"),
    ),
    Inhibition(
        source=('alertname=~"FilesystemFull|StorageStalled"',),
        target=('alertname="CheckpointSaveFailing"',),
        equal=("cluster",),
    ),
    # While the service is down its silence is no news. ServiceDown has no labels of a cluster: nothing to compare.
    Inhibition(source=('alertname="ServiceDown"',), target=('alertname=~"Detector.+|AnomalyScoreHigh"',), equal=()),
)


def config() -> dict[str, Any]:
    """The whole file. People's own receivers go into the empty `pager` and `tickets`."""
    service = {
        "name": "everstep",
        "webhook_configs": [
            {
                "url": f"{SERVICE_URL}/api/v1/alerts",
                "send_resolved": True,
                "max_alerts": 200,
                "http_config": {"authorization": {"credentials_file": TOKEN_FILE}},
            }
        ],
    }
    return {
        "route": {
            "receiver": "tickets",
            "group_by": ["cluster", "train_job", "node"],
            "group_wait": "10s",
            "group_interval": "1m",
            "repeat_interval": "4h",
            "routes": [
                {"matchers": ['severity="none"'], "receiver": "watchdog", "repeat_interval": "5m"},
                {"matchers": ['severity="info"'], "receiver": "nobody"},
                {
                    "matchers": ['severity=~"critical|warning"'],
                    "receiver": "everstep",
                    "group_by": ["cluster", "train_job"],
                    "group_wait": "1s",
                    "group_interval": "5s",
                    "continue": True,
                },
                {"matchers": ['severity="critical"'], "receiver": "pager"},
                {"matchers": ['severity="warning"'], "receiver": "tickets"},
            ],
        },
        "inhibit_rules": [inhibition.to_yaml() for inhibition in INHIBITIONS],
        "receivers": [service, *({"name": name} for name in ("pager", "tickets", "watchdog", "nobody"))],
    }
