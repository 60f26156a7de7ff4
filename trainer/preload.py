"""Import this in a warm parent: afterwards a forked worker finds every module loaded that it will use.

`PRELOAD` names the ones that torch itself loads only at the first use (first optimizer step, first sharded forward,
first checkpoint) and that would cost a forked worker more than a second. None of them starts a thread, joins a process
group or touches a device; a test holds that.
"""

from __future__ import annotations

import importlib

PRELOAD: tuple[str, ...] = (
    "torch",
    "torch._dynamo",
    "torch._inductor.utils",
    "torch._inductor.test_operators",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.distributed.checkpoint",
    "torch.nn.utils._expanded_weights",
    "torch.onnx",
    "torch.profiler._cupti_monitor",
    "torch.utils.serialization.config",
    "numpy.fft",
    "numpy.random",
    "everstep.core.exits",
    "everstep.trainer.session",
)

for _name in PRELOAD:
    importlib.import_module(_name)
