"""A training loop of your own, watched by Everstep: the lines marked 1 to 5 are all it needs, those marked + tell more.

    python examples/bare_loop.py
    torchrun --nproc-per-node 2 examples/bare_loop.py

Under an agent (`program: [examples/bare_loop.py]` in its configuration) every step is seen; without one the marked
lines do nothing. Run again with more `--steps` and the same `--output`, it goes on from its checkpoint.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from everstep.trainer_integration import EverstepCallback  # 1

VOCABULARY, BATCH, LENGTH = 64, 8, 16


def batches(start: int) -> Iterator[tuple[int, Tensor]]:
    """Sequences [BATCH, LENGTH + 1] in which each token follows from the one before, from batch number `start` on."""
    rank = int(os.environ.get("RANK", "0"))
    index = start
    while True:
        generator = torch.Generator().manual_seed(1_000 * index + rank)
        tokens = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
        for _ in range(LENGTH):
            tokens = torch.cat((tokens, (5 * tokens[:, -1:] + 3) % VOCABULARY), dim=1)
        yield index, tokens
        index += 1


def train(options: argparse.Namespace) -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    model: nn.Module = nn.Sequential(nn.Embedding(VOCABULARY, 32), nn.Tanh(), nn.Linear(32, VOCABULARY))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    done = load(options.output / "checkpoint.pt", model, optimizer)
    replica = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    data = batches(done)

    callback = EverstepCallback.from_environment()  # 2
    callback.on_train_start(step=done, tokens=done * BATCH * LENGTH * ranks)  # 3
    for step in range(done + 1, options.steps + 1):
        callback.step_begin(step - 1)  # 4
        with callback.phase("data"):  # +
            index, tokens = next(data)
        with callback.phase("forward"):  # +
            loss = nn.functional.cross_entropy(replica(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        with callback.phase("backward"):  # +
            optimizer.zero_grad()
            loss.backward()
        with callback.phase("optimizer"):  # +
            norm = nn.utils.clip_grad_norm_(replica.parameters(), 1.0).item()
            optimizer.step()
        if not math.isfinite(loss.item()):  # +
            callback.on_nonfinite(index, input_nonfinite=False, loss=loss.item())  # +
        told = {"gradient_norm": norm, "learning_rate": options.learning_rate, "batch_index": index}  # +
        callback.step_end(step, loss=loss.item(), tokens=step * BATCH * LENGTH * ranks, **told)  # 5
        callback.state("steady")  # +
    save(options.output / "checkpoint.pt", model, optimizer, step=max(done, options.steps))
    callback.on_checkpoint("disk", max(done, options.steps))  # +
    callback.state("idle")  # +


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The number of steps that the checkpoint has behind it, 0 when there is none."""
    if not path.exists():
        return 0
    state: dict[str, Any] = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, *, step: int) -> None:
    """Rank 0 writes beside the old checkpoint and then replaces it: a crash leaves one that is whole."""
    if int(os.environ.get("RANK", "0")) == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="a bare training loop, watched by Everstep")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--output", type=Path, default=Path("bare-loop-output"))
    options = parser.parse_args(arguments)
    torch.manual_seed(1)
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed:
        dist.init_process_group("gloo")
    train(options)
    if distributed:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
