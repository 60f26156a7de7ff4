"""AdamW over this rank's shards.

The optimizer works on the plain local tensors that FSDP2's parameters are made of, not on the distributed tensors
around them: the same arithmetic, without a dispatch through the sharding rules for each of a dozen operations on each
parameter. It also makes the whole training state a dictionary of plain tensors, which is what a snapshot wants.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from everstep.trainer.config import OptimizerConfig


class ShardedAdamW:
    """Owns the local views of the parameters, their moments and the step count."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        self._model = model
        self._distributed: dict[str, nn.Parameter] = dict(model.named_parameters())
        self._local = {name: _local(parameter) for name, parameter in self._distributed.items()}
        matrices = [tensor for tensor in self._local.values() if tensor.dim() > 1]
        vectors = [tensor for tensor in self._local.values() if tensor.dim() == 1]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            foreach=False,
        )
        for tensor in self._local.values():
            self._optimizer.state[tensor] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(tensor),
                "exp_avg_sq": torch.zeros_like(tensor),
            }

    def collect_gradients(self) -> Tensor:
        """Take over the gradients that backward left and return the sum of their squares on this rank (float64)."""
        total = torch.zeros((), dtype=torch.float64)
        with torch.no_grad():
            for name, parameter in self._distributed.items():
                gradient = parameter.grad
                local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
                self._local[name].grad = local
                if local is not None:
                    total += local.square().sum(dtype=torch.float64)
        return total

    def step(self, *, learning_rate: float, scale: float) -> None:
        """Apply the collected gradients times `scale`, then drop them."""
        with torch.no_grad():
            for tensor in self._local.values():
                if scale != 1.0 and tensor.grad is not None:
                    tensor.grad.mul_(scale)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self.drop_gradients()

    def drop_gradients(self) -> None:
        for tensor in self._local.values():
            tensor.grad = None
        self._model.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a restore needs, as views: writing into them sets weights, moments and step counts."""
        found: dict[str, Tensor] = {}
        for name, tensor in self._local.items():
            state = self._optimizer.state[tensor]
            found[f"weight/{name}"] = tensor.detach()
            found[f"exp_avg/{name}"] = state["exp_avg"]
            found[f"exp_avg_sq/{name}"] = state["exp_avg_sq"]
            found[f"step/{name}"] = state["step"]
        return found

    def distributed_tensors(self, mesh: DeviceMesh) -> dict[str, Tensor]:
        """The same state as distributed tensors over the same memory, for a checkpoint that may be cut anew."""
        found: dict[str, Tensor] = {}
        for key, tensor in self.tensors().items():
            kind, name = key.split("/", 1)
            whole = self._distributed[name]
            found[key] = (
                tensor
                if kind == "step"
                else DTensor.from_local(
                    tensor, mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride()
                )
            )
        return found


def _local(parameter: nn.Parameter) -> nn.Parameter:
    with torch.no_grad():
        shard = parameter.to_local() if isinstance(parameter, DTensor) else parameter.detach()
    return nn.Parameter(shard)


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """For step 1 to `steps`: linear warm-up, then a half cosine down to `final_ratio` of the peak.

    >>> round(learning_rate(OptimizerConfig(learning_rate=1.0, warmup_steps=10, final_ratio=0.1), 5, 100), 3)
    0.5
    """
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    ratio = config.final_ratio + (1.0 - config.final_ratio) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
    return config.learning_rate * ratio
