from __future__ import annotations

import pytest
import torch

from everstep.trainer.data.lane import HostLane, lane_to
from everstep.trainer.data.preprocess import pack, shift


def test_on_a_cpu_nothing_is_copied() -> None:
    lane = lane_to(torch.device("cpu"))
    rows = torch.arange(9, dtype=torch.uint8)
    assert isinstance(lane, HostLane)
    assert lane.send(rows) is rows
    lane.receive(lane.mark(), (rows,))


@pytest.mark.gpu
def test_on_a_gpu_the_training_stream_sees_what_the_side_stream_made() -> None:
    if not torch.cuda.is_available():
        pytest.skip("GPU LANE NOT TESTED: there is no NVIDIA GPU")
    device = torch.device("cuda", 0)
    lane = lane_to(device)
    for value in range(50):
        rows = torch.full((64, 4097), value, dtype=torch.uint8)
        sent = lane.send(rows)
        with lane.work():
            inputs, targets = shift(pack(sent, context=4096))
        lane.receive(lane.mark(), (inputs, targets))
        assert inputs.device.type == "cuda"
        assert int(inputs.sum() + targets.sum()) == 2 * 64 * 4096 * value
