"""A Hugging Face `Trainer`, watched by Everstep: one more callback is all it needs.

    python examples/huggingface_trainer.py
    torchrun --nproc-per-node 2 examples/huggingface_trainer.py

Under an agent (`program: [examples/huggingface_trainer.py]` in its configuration) every step is seen; without one the
callback does nothing. Run again with more `--steps` and the same `--output`, it goes on from its checkpoint. Nothing is
downloaded: the model is a small Llama with random weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from everstep.trainer_integration.huggingface import EverstepTrainerCallback

VOCABULARY, BATCH, LENGTH, SEQUENCES = 64, 8, 16, 160


class Texts(Dataset[dict[str, Tensor]]):
    """Sequences of LENGTH tokens in which each token follows from the one before."""

    def __init__(self, count: int, seed: int) -> None:
        tokens = torch.randint(VOCABULARY, (count, 1), generator=torch.Generator().manual_seed(seed))
        for _ in range(LENGTH - 1):
            tokens = torch.cat((tokens, (5 * tokens[:, -1:] + 3) % VOCABULARY), dim=1)
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self._tokens[index], "labels": self._tokens[index]}


def model() -> LlamaForCausalLM:
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **shape))


def train(options: argparse.Namespace) -> None:
    settings = TrainingArguments(
        output_dir=str(options.output),
        max_steps=options.steps,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=options.accumulate,
        learning_rate=options.learning_rate,
        lr_scheduler_type=options.schedule,
        logging_steps=options.log_every,  # the loss is known when it is logged
        logging_nan_inf_filter=False,  # else a loss that is not finite is replaced before anybody sees it
        include_num_input_tokens_seen="all",
        eval_strategy="steps",
        eval_steps=20,
        save_steps=10,
        save_total_limit=2,
        seed=1,
        use_cpu=True,
        dataloader_pin_memory=False,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model(),
        args=settings,
        train_dataset=Texts(SEQUENCES, seed=1),
        eval_dataset=Texts(16, seed=2),
        callbacks=[EverstepTrainerCallback()],  # the one line
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(options.output) if options.output.exists() else None)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="a Hugging Face Trainer, watched by Everstep")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--schedule", default="linear")
    parser.add_argument("--log-every", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("huggingface-output"))
    set_seed(1)
    train(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
