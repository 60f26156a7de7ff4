"""Configuration of the service and the agent: nested, works with no file, validated at load, unknown keys rejected.

The one module of the control plane that reads the environment (`EVERSTEP_…`, nested with `__`). A training process does
not import it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from everstep.core.errors import ConfigError
from everstep.core.topology import Node, Topology

JobName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
"""Folders and rank records are named after jobs, and entities are `job/rank`: no slash, no space, 63 bytes."""
NodeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=253)]
WebAddress = Annotated[str, Field(pattern=r"^(https?://[^\s/]+(/\S*)?)?$", max_length=2000)]
"""With scheme, host and perhaps a path; or empty."""


def _unique(names: list[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the {what} {name!r} stands in the list twice")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Endpoint(Section):
    """Where a server listens. Loopback unless told otherwise; TLS when both files are given; a token by file."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    token_file: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    @model_validator(mode="after")
    def _both_tls_files(self) -> Endpoint:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together: give both or none")
        return self


class JobCommand(Section):
    """A command that this agent may run; requests over the network name it by `name` and send no command."""

    name: JobName
    program: list[str] = Field(min_length=1, description="script path, or -m and a module, then arguments")
    preload: list[str] = Field(default_factory=lambda: ["torch"], description="modules the warm parent imports")
    environment: dict[str, str] = Field(default_factory=dict)
    checkpoint_dir: Path | None = None
    tensor_parallel: int = Field(default=1, ge=1, description="ranks that share a layer; told in the run's labels")
    pipeline_parallel: int = Field(default=1, ge=1, description="stages of the model; told in the run's labels")


class StorageTarget(Section):
    """A folder whose storage is probed; `name` is the label `target`."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    path: Path


class EchoEndpoint(Section):
    """Where the latency probes of other agents are answered, over UDP. Port 0: the number of `agent.listen.port`."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)


class EchoPeer(Section):
    """An address of another agent on one rail. A number, not a name: a probe waits for no name server."""

    address: IPvAnyAddress
    port: int = Field(default=9810, ge=1, le=65535)
    rack: NodeName
    rail: NodeName = "0"


class ProbeSettings(Section):
    """What the agent tries out by itself. Job checkpoint folders are probed without being listed here."""

    storage: list[StorageTarget] = Field(default_factory=list)
    storage_interval_s: float = Field(default=10.0, ge=1, le=3600)
    storage_timeout_s: float = Field(default=10.0, gt=0, le=3600, description="a longer operation counts in +Inf")
    echo: EchoEndpoint | None = Field(default=None, description="empty: no probe of another agent is answered")
    peers: list[EchoPeer] = Field(default_factory=list, max_length=100_000)
    peers_per_round: int = Field(default=8, ge=1, le=256, description="pairs of rack and rail that this node probes")
    peers_interval_s: float = Field(default=10.0, ge=2, le=3600)
    slurm: bool = Field(default=False, description="read queue waits from squeue; on one agent of a cluster only")

    @model_validator(mode="after")
    def _each_target_once(self) -> ProbeSettings:
        _unique([target.name for target in self.storage], "storage target")
        return self


class AgentSettings(Section):
    """One node agent. `run_dir` holds rank records and memory-tier snapshots (tmpfs), `log_dir` worker logs."""

    node: NodeName = "node-0"
    rack: str = "rack-0"
    cluster: str = "default"
    listen: Endpoint = Endpoint(port=9810)
    service_url: str = "http://127.0.0.1:9800"
    service_token_file: Path | None = None
    service_ca_file: Path | None = None
    run_dir: Path = Path("/dev/shm/everstep")  # noqa: S108 - tmpfs is the point; the agent makes it 0700
    log_dir: Path = Path("/var/log/everstep")
    slots: int = Field(default=1, ge=1, le=64)
    push_interval_s: float = Field(default=1.0, ge=0.1, le=60)
    poll_interval_s: float = Field(default=0.1, ge=0.02, le=10)
    push_timeout_s: float = Field(default=2.0, gt=0, le=60)
    push_buffer_samples: int = Field(default=200_000, ge=1_000)
    orphan_grace_s: float = Field(default=60.0, ge=0, description="workers outlive a dead agent for this long")
    sample_interval_s: float = Field(default=1.0, ge=0.1, le=60, description="host, network and storage counters")
    gpu_interval_s: float = Field(default=1.0, ge=0.1, le=60)
    source_deadline_s: float = Field(
        default=2.0, gt=0, le=600, description="a reading that takes longer makes its source stale"
    )
    gpus_expected: int | None = Field(default=None, ge=0, le=64, description="empty: the highest count seen so far")
    nvml_library: Path | None = Field(default=None, description="empty: libnvidia-ml.so.1 where the loader finds it")
    gpu_profiling: bool = Field(default=False, description="tensor-core utilisation; may disturb other profilers")
    kernel_log: Path = Path("/dev/kmsg")
    proc_root: Path = Path("/proc")
    sys_root: Path = Path("/sys")
    probes: ProbeSettings = ProbeSettings()
    jobs: list[JobCommand] = Field(default_factory=list)

    @model_validator(mode="after")
    def _each_job_once(self) -> AgentSettings:
        _unique([job.name for job in self.jobs], "job")
        return self


class NodeEntry(Section):
    name: NodeName
    agent_url: str = ""
    rack: str = "rack-0"
    leaf: str = "leaf-0"
    slots: int = Field(default=1, ge=1, le=64)
    gpus: int = Field(default=0, ge=0)
    spare: bool = False


class JobSettings(Section):
    """A job that the service looks after. `autostart` starts attempt 1 as soon as enough nodes are ready."""

    name: JobName
    world_size: int = Field(ge=1)
    autostart: bool = True
    cold: bool = False


class DetectorSettings(Section):
    """Deadlines in seconds, peers as a ratio. Chosen on open seeds; see bench/results."""

    tick_s: float = Field(default=0.25, gt=0)
    node_deadline_s: float = Field(default=2.5, gt=0, description="silence of a pushing agent before it is probed")
    stopped_confirm_s: float = Field(default=1.0, ge=0, description="how long a worker must stay stopped")
    hang_factor: float = Field(default=3.0, gt=1, description="times the learned step time without any step")
    hang_floor_s: float = Field(default=1.5, gt=0)
    unconfirmed_hang_s: float = Field(default=120.0, gt=0, description="no step and no other evidence")
    startup_deadline_s: float = Field(default=120.0, gt=0)
    warmup_steps: int = Field(default=10, ge=2)
    peer_ratio: float = Field(default=1.25, gt=1)
    peer_window: int = Field(default=10, ge=4)
    peer_needed: int = Field(default=8, ge=3)


class RecoverySettings(Section):
    """Guard-rails of faults.md section 4 and the timeouts of the engine's verbs."""

    dry_run: bool = False
    approval: bool = False
    settle_s: float = Field(default=0.3, ge=0, description="time for evidence to arrive before a verdict")
    verb_timeout_s: float = Field(default=5.0, gt=0)
    start_timeout_s: float = Field(default=60.0, gt=0)
    canary_steps: int = Field(default=3, ge=1)
    max_cordoned_per_hour: int = Field(default=2, ge=0)
    max_cordoned_share: float = Field(default=0.5, ge=0, le=1)
    max_same_action: int = Field(default=2, ge=1)
    max_restarts_per_hour: int = Field(default=10, ge=1)
    allow_rescale: bool = Field(default=False, description="go on with fewer ranks when no node can take over")


class ServiceSettings(Section):
    cluster: str = Field(default="", max_length=253, description="label of the targets at /sd; empty: none")
    listen: Endpoint = Endpoint(port=9800)
    data_dir: Path = Path("/var/lib/everstep")
    agent_token_file: Path | None = None
    agent_ca_file: Path | None = None
    nodes: list[NodeEntry] = Field(default_factory=list)
    jobs: list[JobSettings] = Field(default_factory=list)
    max_body_bytes: int = Field(default=16 * 2**20, ge=1024)
    max_decoded_bytes: int = Field(default=64 * 2**20, ge=1024)
    window_s: float = Field(default=600.0, gt=0)
    max_series: int = Field(default=1_000_000, ge=100)
    public_url: WebAddress = Field(default="", description="where people reach the service, for links in alerts")
    alertmanager_url: WebAddress = Field(default="", description="gets our verdicts as alerts; empty: nobody does")
    prometheus_url: WebAddress = Field(default="", description="history for the baselines; empty: none is read")
    detector: DetectorSettings = DetectorSettings()
    recovery: RecoverySettings = RecoverySettings()

    @model_validator(mode="after")
    def _each_job_once(self) -> ServiceSettings:
        _unique([job.name for job in self.jobs], "job")
        return self

    def topology(self) -> Topology:
        """Raises `ConfigError` on duplicate nodes."""
        return Topology.of([Node(**entry.model_dump()) for entry in self.nodes])


class Settings(BaseSettings):
    """The whole file; each process reads its own section."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix="EVERSTEP_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    agent: AgentSettings = AgentSettings()
    service: ServiceSettings = ServiceSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file; no .env file and no secrets folder are looked for."""
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings


class _DuplicateKeyError(yaml.MarkedYAMLError):
    pass


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, of which YAML would keep the last in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _DuplicateKeyError(problem=f"holds the key {key.value!r} twice", problem_mark=key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(path: Path | None) -> Settings:
    """Settings from a YAML file and the environment. Raises `ConfigError` with one line that names key and mend."""
    data = _read(path) if path is not None else {}
    source = path if path is not None else "the environment"
    try:
        return Settings(**data)
    except SettingsError as error:
        raise ConfigError(
            f"a variable EVERSTEP_... is not valid ({error})",
            mend="lists and mappings in the environment are written as JSON",
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        known = _known_keys(first["loc"]) if first["type"] == "extra_forbidden" else ""
        raise ConfigError(
            f"{source}: {key}: {first['msg']}",
            mend=known or "correct the value; `everstep config show` prints all keys",
        ) from error


def _read(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; an empty file is an empty one."""
    try:
        data = yaml.load(path.read_text(), _Loader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigError(
            f"cannot read configuration {path} ({error.strerror})",
            mend="check the path and its permissions",
        ) from error
    except _DuplicateKeyError as error:
        raise ConfigError(f"{path}{_line(error)} {error.problem}", mend="keep one of them") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}{_line(error)} is not valid YAML", mend="correct the syntax there") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping at the top", mend="start it with 'agent:' or 'service:'")
    return {str(key): value for key, value in data.items()}


def _line(error: Exception) -> str:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return f" line {mark.line + 1}" if mark is not None else ""


def _known_keys(location: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = Settings
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[str(part)].annotation
        arguments = getattr(annotation, "__args__", None)
        candidate = arguments[0] if arguments else annotation
        if not (isinstance(candidate, type) and issubclass(candidate, BaseModel)):
            return ""
        model = candidate
    return "known keys here: " + ", ".join(sorted(model.model_fields))


def read_token(path: Path | None) -> str | None:
    """The bearer token of a file, without surrounding space. Raises `ConfigError` when it is unreadable or empty."""
    if path is None:
        return None
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read token file {path}", mend="check the path and its permissions") from error
    if not token:
        raise ConfigError(
            f"token file {path} is empty",
            mend="write a random token into it, for example with `openssl rand -hex 32`",
        )
    return token
