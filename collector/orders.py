"""What the controller may ask of an agent: the request bodies, checked strictly, extra keys refused.

No order carries a command: a job is named, and this agent's own configuration says what that runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

_STRICT = ConfigDict(extra="forbid", strict=True)
JobName = Annotated[str, Field(min_length=1, max_length=63)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Index = Annotated[int, Field(ge=0, le=1_000_000)]
AttemptNumber = Annotated[int, Field(ge=0, le=1_000_000_000)]
Port = Annotated[int, Field(ge=1, le=65535)]
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,253}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOrder:
    __pydantic_config__ = _STRICT
    job: JobName
    attempt: AttemptNumber
    cold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOrder:
    __pydantic_config__ = _STRICT
    step: Annotated[int, Field(ge=0)]
    tier: Literal["memory", "disk"]
    attempt: AttemptNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    __pydantic_config__ = _STRICT
    job: JobName
    attempt: AttemptNumber
    rank: Index
    local_rank: Index
    local_world_size: Count
    world_size: Count
    node_rank: Index
    nnodes: Count
    master_addr: HostName
    master_port: Port
    resume: ResumeOrder | None = None
    skip_batches: tuple[Index, ...] = ()
    cold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOrder:
    __pydantic_config__ = _STRICT
    job: JobName
    attempt: AttemptNumber
    rank: Index
    signal: Literal["STOP", "CONT", "TERM", "KILL", "USR1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOrder:
    __pydantic_config__ = _STRICT
    job: JobName
    attempt: AttemptNumber
    grace_s: Annotated[float, Field(ge=0, le=600)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksOrder:
    __pydantic_config__ = _STRICT
    job: JobName


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonOrder:
    __pydantic_config__ = _STRICT
    reason: Annotated[str, Field(min_length=1, max_length=500)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonOrder:
    __pydantic_config__ = _STRICT
