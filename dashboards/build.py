"""Writes the boards to `json/` and says which files are stale."""

from __future__ import annotations

from pathlib import Path

from everstep.core.derived import stale_files, write_files
from everstep.dashboards import cluster, gpu_node, incidents, job, network_storage, own, ranks, scheduler
from everstep.dashboards.board import Board
from everstep.dashboards.grafana import to_json

JSON = Path(__file__).resolve().parent / "json"
BOARDS: tuple[Board, ...] = (
    cluster.BOARD,
    job.BOARD,
    ranks.BOARD,
    incidents.BOARD,
    gpu_node.BOARD,
    network_storage.BOARD,
    scheduler.BOARD,
    own.BOARD,
)


def files() -> dict[str, str]:
    """Name to content of every generated file."""
    return {f"{board.uid}.json": to_json(board) for board in BOARDS}


def write(folder: Path = JSON) -> tuple[Path, ...]:
    return write_files(folder, files())


def stale(folder: Path = JSON) -> tuple[str, ...]:
    """Names of files that are missing, differ from their builder, or belong to no board any more."""
    return stale_files(folder, files(), "*.json")
