"""Configuration of a training run: nested frozen dataclasses, read from YAML, unknown keys refused."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from everstep.core.errors import ConfigError

_T = TypeVar("_T")


def _require(condition: bool, problem: str, mend: str) -> None:
    if not condition:
        raise ConfigError(problem, mend=mend)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A Llama-style byte-level decoder; `context` is the window length in bytes."""

    width: int = 128
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 352
    context: int = 128
    rope_base: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "kv_heads", "hidden", "context"):
            _require(getattr(self, name) > 0, f"model.{name} must be positive", "give a whole number of at least 1")
        _require(
            self.width % (2 * self.heads) == 0,
            "model.width must be an even multiple of model.heads",
            "change one of them",
        )
        _require(
            self.heads % self.kv_heads == 0, "model.heads must be a multiple of model.kv_heads", "change one of them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsConfig:
    """Large data: every file at `url` (a folder, `s3://bucket/prefix`, ...) that ends with `suffix` is a shard.

    The windows of `mix` shards are shuffled together; a rank holds that many at once.
    """

    url: str | None = None
    suffix: str = ""
    mix: int = 8

    def __post_init__(self) -> None:
        _require(self.mix > 0, "data.shards.mix must be positive", "1 shuffles within each shard only")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchConfig:
    """How many shards are read ahead of their need, by how many threads; `timeout_s` bounds one attempt of a read."""

    shards_ahead: int = 16
    num_threads: int = 4
    attempts: int = 3
    timeout_s: float = 20.0

    def __post_init__(self) -> None:
        for name in ("shards_ahead", "num_threads", "attempts", "timeout_s"):
            _require(getattr(self, name) > 0, f"data.prefetch.{name} must be positive", "give a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """What one rank holds: `memory_mb` MiB of shards and, with a `directory` on a local disk, `disk_mb` more."""

    memory_mb: int = 512
    directory: Path | None = None
    disk_mb: int = 8192

    def __post_init__(self) -> None:
        for name in ("memory_mb", "disk_mb"):
            _require(getattr(self, name) > 0, f"data.cache.{name} must be positive", "give whole MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskConfig:
    """Span masking: `ratio` of the inputs (0: none) is hidden behind `byte`, in spans of `span` bytes."""

    ratio: float = 0.0
    span: int = 4
    byte: int = 0

    def __post_init__(self) -> None:
        _require(0 <= self.ratio <= 0.9, "data.mask.ratio is outside 0 to 0.9", "give a ratio; 0 is none")
        _require(self.span > 0, "data.mask.span must be positive", "give a length in bytes")
        _require(0 <= self.byte <= 255, "data.mask.byte is outside 0 to 255", "give a byte")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Sorted *.py files below `directory` (default: the standard library), at most `max_bytes` of them; or `shards`.

    `batch_size` is the global number of windows in a batch; `skip_batches` are left out of the data order. Each stage
    of the pipeline holds up to `batches_ahead` batches.
    """

    directory: Path | None = None
    max_bytes: int = 2 * 2**20
    batch_size: int = 9
    skip_batches: tuple[int, ...] = ()
    batches_ahead: int = 4
    shards: ShardsConfig = field(default_factory=ShardsConfig)
    prefetch: PrefetchConfig = field(default_factory=PrefetchConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    mask: MaskConfig = field(default_factory=MaskConfig)

    def __post_init__(self) -> None:
        _require(self.batch_size > 0, "data.batch_size must be positive", "give a whole number of at least 1")
        _require(self.batches_ahead > 0, "data.batches_ahead must be positive", "give a whole number of at least 1")
        _require(self.max_bytes >= 4096, "data.max_bytes is below 4096", "allow at least a few kilobytes of text")
        _require(
            all(batch >= 0 for batch in self.skip_batches),
            "data.skip_batches holds a negative index",
            "batches count from 0",
        )
        _require(
            self.directory is None or self.shards.url is None,
            "data.directory and data.shards.url are both set",
            "keep one of them",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW with linear warm-up and a cosine to `final_ratio` of the peak at the last step."""

    learning_rate: float = 2e-3
    warmup_steps: int = 20
    final_ratio: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, "optimizer.learning_rate must be positive", "0.002 is a good start")
        _require(self.warmup_steps >= 0, "optimizer.warmup_steps is negative", "use 0 for none")
        _require(0 <= self.final_ratio <= 1, "optimizer.final_ratio is outside 0 to 1", "give a ratio")
        _require(0 <= self.beta1 < 1 and 0 <= self.beta2 < 1, "optimizer betas must be in [0, 1)", "correct them")
        _require(self.clip_norm > 0, "optimizer.clip_norm must be positive", "1.0 is usual")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Every how many steps each tier is written (0: never) and how many are kept.

    `directory` is shared storage, by default `<output_dir>/checkpoints`. `memory_dir` serves runs without a node
    agent; an agent's own memory directory wins over it.
    """

    directory: Path | None = None
    memory_dir: Path | None = None
    memory_every_steps: int = 1
    disk_every_steps: int = 20
    keep_memory: int = 2
    keep_disk: int = 3

    def __post_init__(self) -> None:
        _require(self.memory_every_steps >= 0, "checkpoint.memory_every_steps is negative", "use 0 for never")
        _require(self.disk_every_steps >= 0, "checkpoint.disk_every_steps is negative", "use 0 for never")
        _require(
            self.keep_memory >= 2,
            "checkpoint.keep_memory is below 2",
            "keep two: after a kill the ranks' newest copies differ by one",
        )
        _require(self.keep_disk >= 2, "checkpoint.keep_disk is below 2", "keep two: the newest may be damaged")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutConfig:
    """Bounds in seconds: collectives before and after the first step, and the wait for the controller's verdict."""

    start_s: float = 60.0
    step_s: float = 30.0
    nonfinite_s: float = 30.0

    def __post_init__(self) -> None:
        _require(min(self.start_s, self.step_s) > 0, "timeouts must be positive", "give seconds")
        _require(self.nonfinite_s >= 0, "timeouts.nonfinite_s is negative", "give seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training run. `chaos` allows the fault-injection files of `everstep.trainer.chaos` to be read."""

    output_dir: Path
    job: str = "demo"
    steps: int = 200
    seed: int = 0
    chaos: bool = False
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    timeouts: TimeoutConfig = field(default_factory=TimeoutConfig)

    def __post_init__(self) -> None:
        _require(bool(self.job) and "/" not in self.job, "job must be a name without '/'", "rename it")
        _require(self.steps > 0, "steps must be positive", "give the number of steps to train")
        _require(self.seed >= 0, "seed is negative", "give a whole number of at least 0")

    @property
    def checkpoint_dir(self) -> Path:
        return self.checkpoint.directory or self.output_dir / "checkpoints"


def load(path: Path) -> TrainConfig:
    """Read a run's configuration. Raises `ConfigError` with one line that names file, key and mend."""
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(
            f"cannot read configuration {path} ({error.strerror})", mend="check the path and its permissions"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML", mend="correct its syntax") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping at the top", mend="start it with 'output_dir: ...'")
    try:
        return _section(TrainConfig, data, "")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.problem}", mend=error.mend) from error


def _section(kind: type[_T], data: Mapping[str, Any], where: str) -> _T:
    fields = {each.name: each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise ConfigError(f"unknown key {where}{key}", mend="known keys here: " + ", ".join(sorted(fields)))
    missing = [
        name
        for name, each in fields.items()
        if name not in data and each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"key {where}{missing[0]} is missing", mend="add it")
    hints = typing.get_type_hints(kind)
    return kind(**{key: _value(hints[key], value, where + key) for key, value in data.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be a mapping", mend="indent its keys below it")
        return _section(hint, value, f"{where}.")  # type: ignore[arg-type]
    if isinstance(hint, types.UnionType):
        return None if value is None else _value(hint.__args__[0], value, where)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint == tuple[int, ...] and isinstance(value, list) and all(type(item) is int for item in value):
        return tuple(value)
    if hint in {int, bool, str} and type(value) is hint:
        return value
    wanted = getattr(hint, "__name__", "list of whole numbers")
    raise ConfigError(f"{where} is {value!r}", mend=f"give a value of type {wanted}")
