"""The configuration of a city: a TOML file, then `.env`, then PRICEMESH_* variables, the later winning.

Frozen once read. Everything that is wrong is said at once, each fault under its key.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pricemesh.city.addresses import CITY_NAME, checked_address
from pricemesh.city.gossip_secrets import parse_secret
from pricemesh.core.arrays import MAX_CONTEXT_LENGTH
from pricemesh.core.features import Feature, FeatureSpace
from pricemesh.core.policies import Policy, Shape, make_policy
from pricemesh.core.summary import fingerprint
from pricemesh.errors import PricemeshError, WrongConfiguration

PREFIX = "PRICEMESH_"
NOT_SETTINGS = {"PRICEMESH_CONFIG", "PRICEMESH_KEY"}


def _ours(check: Any) -> None:
    """Let an error of ours be one of pydantic's, so that it is listed with the others."""
    try:
        check()
    except PricemeshError as fault:
        raise ValueError(str(fault)) from None


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FeatureSettings(Section):
    """A feature without bounds is held to ten thousand either way: larger numbers want another unit."""

    name: str = Field(min_length=1, max_length=100)
    min: float = Field(default=-1e4, ge=-1e5, le=1e5)
    max: float = Field(default=1e4, ge=-1e5, le=1e5)

    @property
    def feature(self) -> Feature:
        return Feature(self.name, self.min, self.max)


class ArmSettings(Section):
    prices: tuple[float, ...] = Field(min_length=2, max_length=1000)

    @field_validator("prices")
    @classmethod
    def _ascending(cls, prices: tuple[float, ...]) -> tuple[float, ...]:
        if any(low >= high for low, high in pairwise(prices)):
            raise ValueError("prices must ascend, each a different one")
        return prices


class FeaturesSettings(Section):
    shared: tuple[FeatureSettings, ...] = Field(min_length=1, max_length=500)
    local: tuple[FeatureSettings, ...] = Field(default=(), max_length=500)

    @field_validator("shared", "local", mode="before")
    @classmethod
    def _names_or_tables(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [{"name": item} if isinstance(item, str) else item for item in given]
        return given

    @model_validator(mode="after")
    def _consistent(self) -> "FeaturesSettings":
        _ours(lambda: self.space)
        return self

    @cached_property
    def space(self) -> FeatureSpace:
        return FeatureSpace(
            tuple(item.feature for item in self.shared), tuple(item.feature for item in self.local)
        )


class PolicySettings(BaseModel):
    """A policy's name; every other key is one of its parameters."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str = "netpool"

    @model_validator(mode="after")
    def _known(self) -> "PolicySettings":
        _ours(lambda: self.policy.learner(Shape(2, 1, 0)))
        return self

    @cached_property
    def policy(self) -> Policy:
        return make_policy(self.name, **(self.__pydantic_extra__ or {}))


class DatabaseSettings(Section):
    url: str = "sqlite:///pricemesh.db"
    lock_wait_seconds: float = Field(default=10.0, ge=0, le=600)  # for the process that served before

    @field_validator("url")
    @classmethod
    def _supported(cls, url: str) -> str:
        if not url.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ValueError("must start with sqlite:/// or postgresql+psycopg://")
        if url == "sqlite:///" or ":memory:" in url:
            raise ValueError("a database in memory would forget everything: name a file")
        return url


class FeedbackSettings(Section):
    window_seconds: float = Field(default=604_800.0, gt=0)
    default_reward: float | None = Field(default=None, ge=-1e12, le=1e12)
    largest_reward: float = Field(default=1e12, gt=0, le=1e12)  # either way; also of what peers tell

    @model_validator(mode="after")
    def _default_allowed(self) -> "FeedbackSettings":
        if self.default_reward is not None and abs(self.default_reward) > self.largest_reward:
            raise ValueError("default_reward is beyond largest_reward")
        return self


class GuardrailSettings(Section):
    floor: float | None = None
    ceiling: float | None = None
    max_step: float | None = Field(default=None, gt=0)


class GossipSettings(Section):
    peers: tuple[str, ...] = ()
    interval_seconds: float = Field(default=1.0, gt=0)
    group: str = Field(default="default", min_length=1, max_length=100)
    secrets: tuple[str, ...] = ()  # id:secret each; the first signs, all verify
    discover: bool = False  # learn addresses from other cities
    address: str | None = None  # where other cities reach this one, told to those who discover
    cities: tuple[str, ...] = ()  # the only ones heard; none named: all
    most_cities: int = Field(default=256, ge=2, le=10_000)
    fan_out: int = Field(default=8, ge=1)
    timeout_seconds: float | None = Field(default=None, gt=0)  # for an answer; by default one interval
    rate_per_second: float = Field(default=50.0, gt=0)  # requests taken from one city
    lockstep: bool = False  # no clock: `POST /admin/tick` drives

    @field_validator("peers", "secrets", "cities", mode="before")
    @classmethod
    def _by_comma(cls, given: Any) -> Any:
        """Variables may list values by comma."""
        if not isinstance(given, str):
            return given
        return [item.strip() for item in given.split(",") if item.strip()] or ()

    @field_validator("peers")
    @classmethod
    def _addresses(cls, peers: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(checked_address, peers))

    @field_validator("address")
    @classmethod
    def _own_address(cls, address: str | None) -> str | None:
        return None if address is None else checked_address(address)

    @field_validator("secrets")
    @classmethod
    def _secret(cls, secrets: tuple[str, ...]) -> tuple[str, ...]:
        _ours(lambda: [parse_secret(text) for text in secrets])
        ids = [text.partition(":")[0] for text in secrets]
        if len(set(ids)) < len(ids):
            raise ValueError("two secrets have the same id: the other cities could not tell them apart")
        return secrets


class SecuritySettings(Section):
    api_keys_file: Path | None = None
    rate_per_second: float | None = Field(default=None, gt=0)


class LimitSettings(Section):
    body_bytes: int = Field(default=4_194_304, ge=1024)
    batch_size: int = Field(default=1000, ge=1, le=10_000)
    event_readers: int = Field(default=64, ge=1, le=1000)  # pages that listen at a time


class LabSettings(Section):
    demo: bool = False  # let a driver that knows the truth report regret: `POST /lab/truth`


class ServerSettings(Section):
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    drain_seconds: float = Field(default=0.5, ge=0, le=600)
    stop_with_stdin: bool = False  # end when standard input does: with whoever started it
    fast_path: bool = True  # prices and feedback go from the HTTP parser to the city without ASGI
    access_log: bool = False  # log every request, not only refusals, errors and slow ones
    slow_seconds: float = Field(default=1.0, gt=0)  # a request that takes longer is logged


class Settings(Section):
    city: str = Field(pattern=f"^{CITY_NAME}$")
    arms: ArmSettings
    features: FeaturesSettings
    policy: PolicySettings = PolicySettings()
    database: DatabaseSettings = DatabaseSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    guardrails: GuardrailSettings = GuardrailSettings()
    gossip: GossipSettings = GossipSettings()
    security: SecuritySettings = SecuritySettings()
    limits: LimitSettings = LimitSettings()
    lab: LabSettings = LabSettings()
    server: ServerSettings = ServerSettings()

    @model_validator(mode="after")
    def _some_price_allowed(self) -> "Settings":
        rails = self.guardrails
        low = -float("inf") if rails.floor is None else rails.floor
        high = float("inf") if rails.ceiling is None else rails.ceiling
        if not any(low <= price <= high for price in self.arms.prices):
            raise ValueError("guardrails: floor and ceiling leave no price to choose")
        return self

    @property
    def shape(self) -> Shape:
        space = self.features.space
        return Shape(len(self.arms.prices), len(space.shared), len(space.local))

    @property
    def schema_description(self) -> dict[str, Any]:
        """What a database was made for: arms and features, in their order."""
        return {
            "prices": list(self.arms.prices),
            "shared": [feature.name for feature in self.features.space.shared],
            "local": [feature.name for feature in self.features.space.local],
        }

    @property
    def fingerprint(self) -> bytes:
        """What cities must have in common to exchange summaries."""
        return fingerprint(self.common)

    @property
    def common(self) -> dict[str, Any]:
        """What all cities of a group have in common: two that differ in it cannot read each other."""
        policy = self.policy.policy
        return {
            "prices": list(self.arms.prices),
            "shared": [[item.name, item.min, item.max] for item in self.features.space.shared],
            "policy": policy.name,
            "ridge": getattr(policy, "ridge", None),
            "largest_reward": self.feedback.largest_reward,
            "group": self.gossip.group,
        }

    @property
    def longest_square(self) -> float:
        """The largest squared length that a shared context within its bounds can have."""
        bounds = (max(abs(item.min), abs(item.max)) for item in self.features.space.shared)
        return min(sum(bound**2 for bound in bounds), MAX_CONTEXT_LENGTH**2)


def load_settings(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """The effective configuration, or `WrongConfiguration` with every fault in it."""
    values = _from_file(path) if path else {}
    for source in (dotenv_values(".env"), os.environ if environ is None else environ):
        for name, text in source.items():
            if name.startswith(PREFIX) and name not in NOT_SETTINGS and text is not None:
                _put(values, name.removeprefix(PREFIX).lower(), text)
    try:
        return Settings.model_validate(values)
    except ValidationError as fault:
        raise WrongConfiguration([_told(error) for error in fault.errors()]) from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise WrongConfiguration([f"{path}: cannot be read: {fault.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise WrongConfiguration([f"{path}: not TOML: {fault}"]) from None


def _put(values: dict[str, Any], name: str, text: str) -> None:
    """PRICEMESH_DATABASE_URL and PRICEMESH_DATABASE__URL both set database.url."""
    section, _, key = name.partition("__") if "__" in name else name.partition("_")
    if not key:
        values[section] = text
        return
    inner = values.setdefault(section, {})
    if isinstance(inner, dict):
        inner[key] = _parsed(text)


def _parsed(text: str) -> Any:
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return text


def _told(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    said = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        said = "unknown key"
    elif error["type"] == "missing":
        said = "is missing"
    return f"{where}: {said}" if where else said


def as_variables(values: Mapping[str, Any]) -> dict[str, str]:
    """A configuration as the PRICEMESH_* variables that `load_settings` reads."""
    flat = {}
    for section, content in values.items():
        for key, value in content.items() if isinstance(content, dict) else [("", content)]:
            name = f"{PREFIX}{section}_{key}".rstrip("_").upper()
            flat[name] = value if isinstance(value, str) else json.dumps(value)
    return flat


def without_secrets(settings: Settings) -> dict[str, Any]:
    """The effective values as plain data; the database's password is hidden."""
    from sqlalchemy.engine import make_url

    values: dict[str, Any] = settings.model_dump(mode="json")
    values["database"]["url"] = make_url(settings.database.url).render_as_string(hide_password=True)
    values["gossip"]["secrets"] = [f"{text.partition(':')[0]}:***" for text in settings.gossip.secrets]
    return values
