from __future__ import annotations

from pathlib import Path

import pytest

from everstep.core.errors import ConfigError
from everstep.trainer.config import ModelConfig, load


def _write(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def test_defaults_come_with_nothing_but_an_output_folder(tmp_path: Path) -> None:
    config = load(_write(tmp_path, "output_dir: /data/run\n"))
    assert config.checkpoint_dir == Path("/data/run/checkpoints")
    assert (config.job, config.chaos, config.checkpoint.memory_every_steps) == ("demo", False, 1)


def test_nested_values_are_converted(tmp_path: Path) -> None:
    text = "output_dir: o\nmodel: {rope_base: 500}\ndata: {directory: src, skip_batches: [5, 7]}\n"
    config = load(_write(tmp_path, text))
    assert config.model.rope_base == 500.0
    assert config.data.directory == Path("src")
    assert config.data.skip_batches == (5, 7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("output_dir: o\nstep: 3\n", "unknown key step; known keys here: chaos, checkpoint, data"),
        ("output_dir: o\nmodel: {depth: 3}\n", "unknown key model.depth; known keys here: context, heads"),
        ("output_dir: o\nmodel: 3\n", "model must be a mapping"),
        ("output_dir: o\nsteps: many\n", "steps is 'many'; give a value of type int"),
        ("output_dir: o\nsteps: true\n", "steps is True"),
        ("output_dir: o\nsteps: 0\n", "steps must be positive"),
        ("output_dir: o\nmodel: {heads: 3}\n", "model.width must be an even multiple of model.heads"),
        ("output_dir: o\ncheckpoint: {keep_memory: 1}\n", "checkpoint.keep_memory is below 2"),
        ("output_dir: o\ndata: {skip_batches: [1, x]}\n", "data.skip_batches is"),
        (
            "output_dir: o\ndata: {shard: {}}\n",
            "unknown key data.shard; known keys here: batch_size, batches_ahead, cache",
        ),
        ("output_dir: o\ndata: {shards: {mix: 0}}\n", "data.shards.mix must be positive"),
        ("output_dir: o\ndata: {prefetch: {timeout_s: 0}}\n", "data.prefetch.timeout_s must be positive"),
        ("output_dir: o\ndata: {cache: {memory_mb: -1}}\n", "data.cache.memory_mb must be positive"),
        ("output_dir: o\ndata: {mask: {ratio: 1}}\n", "data.mask.ratio is outside 0 to 0.9"),
        ("output_dir: o\ndata: {directory: a, shards: {url: b}}\n", "data.directory and data.shards.url are both set"),
        ("steps: 3\n", "key output_dir is missing"),
        ("- 1\n", "must hold a mapping at the top"),
        ("a: [\n", "is not valid YAML"),
    ],
)
def test_a_bad_file_gives_one_line_that_names_the_mend(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(_write(tmp_path, text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read configuration .*absent\.yaml .No such file"):
        load(tmp_path / "absent.yaml")


def test_query_heads_must_share_key_heads_evenly() -> None:
    with pytest.raises(ConfigError, match=r"multiple of model\.kv_heads"):
        ModelConfig(heads=4, kv_heads=3)
