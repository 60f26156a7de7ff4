"""Every array detector passes the one contract."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from everstep.detector.baseline import RobustBaseline
from everstep.detector.forest import ForestVote
from everstep.detector.peers import PeerDetector, peer_residuals
from everstep.detector.window import Detector, Scores, Window


def _contract() -> ModuleType:
    path = Path(__file__).with_name("contract.py")
    spec = importlib.util.spec_from_file_location("detector_contract", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class ForestOnResiduals:
    """The forest as the fusion uses it: on peer residuals."""

    def __init__(self) -> None:
        self.forest = ForestVote(window=10)

    def learn(self, window: Window) -> None:
        self.forest.learn(window.with_values(peer_residuals(window.values)))

    def score(self, window: Window) -> Scores:
        return self.forest.score(window.with_values(peer_residuals(window.values)))


def refit(detector: Detector) -> None:
    if isinstance(detector, ForestOnResiduals):
        detector.forest.refit()


MAKERS = {
    "baseline": lambda: RobustBaseline(warmup=10),
    "peers": lambda: PeerDetector(ratio=1.25, window=10, needed=8, warmup=10),
    "forest": ForestOnResiduals,
}


@pytest.mark.parametrize("name", MAKERS)
def test_contract(name: str) -> None:
    _contract().check_detector(MAKERS[name], refit)
