"""A LightningModule, watched by Everstep: one more callback for the trainer is all it needs.

    python examples/lightning_module.py
    torchrun --nproc-per-node 2 examples/lightning_module.py

Under an agent (`program: [examples/lightning_module.py]` in its configuration) every step is seen; without one the
callback does nothing. Run again with more `--steps` and the same `--output`, it goes on from its checkpoint.
"""

# mypy: allow-subclassing-any

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl  # `import lightning.pytorch as pl` does as well
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from everstep.trainer_integration.lightning import EverstepLightningCallback

VOCABULARY, BATCH, LENGTH, SEQUENCES = 64, 8, 16, 160


class NextToken(pl.LightningModule):
    """Predicts a token from the one before."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__()
        self.rate = learning_rate
        self.model = nn.Sequential(nn.Embedding(VOCABULARY, 32), nn.Tanh(), nn.Linear(32, VOCABULARY))

    def loss(self, tokens: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return self.loss(batch[0])

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.log("val_loss", self.loss(batch[0]), sync_dist=True)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.rate)
        halving = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": halving, "interval": "step"}}


def sequences(seed: int) -> TensorDataset:
    """Sequences [SEQUENCES, LENGTH + 1] in which each token follows from the one before."""
    tokens = torch.randint(VOCABULARY, (SEQUENCES, 1), generator=torch.Generator().manual_seed(seed))
    for _ in range(LENGTH):
        tokens = torch.cat((tokens, (5 * tokens[:, -1:] + 3) % VOCABULARY), dim=1)
    return TensorDataset(tokens)


def train(options: argparse.Namespace) -> None:
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    checkpoints = ModelCheckpoint(options.output, save_last=True, every_n_train_steps=10, save_top_k=0)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=local,
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")) // local,
        max_steps=options.steps,
        accumulate_grad_batches=options.accumulate,
        gradient_clip_val=1.0,
        check_val_every_n_epoch=1,
        limit_val_batches=2,
        callbacks=[checkpoints, EverstepLightningCallback()],  # the one line
        default_root_dir=options.output,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = options.output / "last.ckpt"
    trainer.fit(
        NextToken(options.learning_rate),
        DataLoader(sequences(1), batch_size=BATCH),
        DataLoader(sequences(2), batch_size=BATCH),
        ckpt_path=last if last.exists() else None,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="a LightningModule, watched by Everstep")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--output", type=Path, default=Path("lightning-output"))
    pl.seed_everything(1, verbose=False)
    train(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
