"""How a city runs: its database, clock, limits on prices and callers, keys and server.

Every key has a description: docs/reference/configuration.md is made of them.
"""

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from pricemesh.city.addresses import checked_host
from pricemesh.city.section import Section, split_by_comma


class DatabaseSettings(Section):
    url: str = Field(
        default="sqlite:///pricemesh.db",
        description="`sqlite:///lisbon.db`, or `postgresql+psycopg://user:password@host:port/database`.",
    )
    replicas: bool = Field(
        default=False, description="Whether other processes serve this city from the same Postgres, too."
    )
    lock_wait_seconds: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="How long a start waits for the process that has the database.",
    )
    timeout_seconds: float = Field(
        default=1.0, ge=0.1, le=60, description="How long a commit may hang; then its callers get a 503."
    )
    read_timeout_seconds: float = Field(
        default=5.0, ge=0.1, le=600, description="The same for `/state`, `/decisions` and other reads."
    )

    @field_validator("url")
    @classmethod
    def _supported(cls, url: str) -> str:
        if not url.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ValueError("must start with sqlite:/// or postgresql+psycopg://")
        if url == "sqlite:///" or ":memory:" in url:
            raise ValueError(
                "must name a file, such as sqlite:///lisbon.db: a city in memory forgets everything"
            )
        if not url.startswith("sqlite:"):
            _check_url(url)
        return url


def _check_url(url: str) -> None:
    from sqlalchemy.engine import make_url  # not needed for SQLite, and slow to load
    from sqlalchemy.exc import ArgumentError

    try:
        make_url(url)
    except (ValueError, ArgumentError):
        raise ValueError("must be written postgresql+psycopg://user:password@host:port/database") from None


class ClockSettings(Section):
    max_step_seconds: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="A larger step of the wall clock holds feedback windows open.",
    )
    steady_seconds: float = Field(
        default=60.0, ge=0, le=86_400, description="Until a new time is believed, also after a start."
    )


class GuardrailSettings(Section):
    floor: float | None = Field(default=None, description="No lower price is given.")
    ceiling: float | None = Field(default=None, description="No higher price is given.")
    max_step: float | None = Field(
        default=None,
        gt=0,
        description="Largest change from the last price that was given to the same `subject`.",
    )


class SecuritySettings(Section):
    api_keys_file: Path | None = Field(
        default=None,
        description="Made by `pricemesh keys new`, read again when it changes and on SIGHUP. Without it the "
        "city listens on loopback only.",
    )
    rate_per_second: float | None = Field(
        default=None, gt=0, description="For each key; a batch counts by its size. More is a 429."
    )


class LimitSettings(Section):
    body_bytes: int = Field(default=4_194_304, ge=1024, description="Of a request; more is a 413.")
    batch_size: int = Field(
        default=1000, ge=1, le=10_000, description="Prices, feedback or decisions named in one call."
    )
    event_readers: int = Field(
        default=64, ge=1, le=1000, description="Open dashboards, and others who read `/events`."
    )
    max_wait_seconds: float = Field(
        default=1.0,
        ge=0.05,
        le=60,
        description="For the database, in the queue and again in a commit; then a 503.",
    )
    connections: int = Field(
        default=4096,
        ge=1,
        le=1_000_000,
        description="Open at once; fewer where the process may not open as many files.",
    )
    header_seconds: float = Field(
        default=10.0, gt=0, le=600, description="For the headers of a request to arrive; then a 408."
    )
    body_seconds: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="For its body; as long again while it comes at 4,096 bytes a second.",
    )
    # Load balancers would otherwise send requests into connections that are being closed.
    idle_seconds: float = Field(
        default=75.0,
        gt=0,
        le=3600,
        description="For a connection without a request; longer than a load balancer keeps one.",
    )


class LabSettings(Section):
    demo: bool = Field(
        default=False,
        description="Whether a driver that knows the truth may report regret: `POST /lab/truth`.",
    )


class ServerSettings(Section):
    host: str = Field(
        default="127.0.0.1", description="Address to listen on; others than loopback need API keys."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="0 takes a free one.")
    hosts: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="Names the city may be called by, beside loopback ones; needed without keys.",
    )
    drain_seconds: float = Field(
        default=0.5,
        ge=0,
        le=600,
        description="How long it still serves after SIGTERM, while `/readyz` is 503.",
    )
    stop_with_stdin: bool = Field(
        default=False, description="Stop at the end of standard input, so that no city outlives its parent."
    )
    fast_path: bool = Field(
        default=True,
        description="Prices and feedback go from the HTTP parser to the city, not through ASGI.",
    )
    access_log: bool = Field(
        default=False, description="Log every request, not only refusals, errors and slow ones."
    )
    slow_seconds: float = Field(default=1.0, gt=0, description="A request that takes longer is logged.")

    @field_validator("hosts", mode="before")
    @classmethod
    def _by_comma(cls, value: Any) -> Any:
        return split_by_comma(value)

    @field_validator("hosts")
    @classmethod
    def _names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(checked_host, hosts))
