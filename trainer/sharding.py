"""The model cut over the ranks: FSDP2 per layer, then the root, on a one-dimensional mesh."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from everstep.trainer.config import ModelConfig
from everstep.trainer.model import Decoder, initialise


def data_mesh(world_size: int) -> DeviceMesh:
    return init_device_mesh("cpu", (world_size,), mesh_dim_names=("dp",))


def sharded_decoder(config: ModelConfig, mesh: DeviceMesh, *, seed: int | None) -> Decoder:
    """The decoder with its parameters as shards. `seed` None leaves the weights empty, for a restore to fill them."""
    model = Decoder(config)
    if seed is not None:
        initialise(model, seed=seed, layers=config.layers)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    torch.manual_seed(seed or 0)
    return model
