"""The configuration of a city: its sections, keys, defaults and limits.

Frozen once read. How a file and variables become one of these, and how faults are worded: `configuration`.
"""

import re
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pricemesh.city.addresses import CITY_NAME, CITY_NAME_RULE, checked_address, checked_host
from pricemesh.city.gossip_secrets import parse_city_key, parse_secret
from pricemesh.city.reward import KINDS, FeedbackSettings, RewardSettings
from pricemesh.city.section import Section, split_by_comma
from pricemesh.core.arrays import MAX_CONTEXT_LENGTH
from pricemesh.core.decision import Margin
from pricemesh.core.features import Feature, FeatureSpace
from pricemesh.core.policies import Policy, Shape, make_policy
from pricemesh.core.summary import fingerprint


class FeatureSettings(Section):
    """A feature without bounds lies within ±10,000: larger numbers call for another unit."""

    name: str = Field(min_length=1, max_length=100, examples=['name = "rain"'])
    min: float = Field(default=-1e4, ge=-1e5, le=1e5)
    max: float = Field(default=1e4, ge=-1e5, le=1e5)

    @property
    def feature(self) -> Feature:
        return Feature(self.name, self.min, self.max)


class ArmSettings(Section):
    prices: tuple[float, ...] = Field(
        min_length=2, max_length=1000, examples=["prices = [8.0, 9.0, 10.0] under [arms]"]
    )

    @field_validator("prices")
    @classmethod
    def _ascending(cls, prices: tuple[float, ...]) -> tuple[float, ...]:
        if min(prices) < 0:
            raise ValueError(f"a price must be 0 or more, not {min(prices):g}")
        for low, high in pairwise(prices):
            if low >= high:
                raise ValueError(f"prices must ascend, and {high:g} comes after {low:g}")
        return prices


class FeaturesSettings(Section):
    shared: tuple[FeatureSettings, ...] = Field(
        min_length=1, max_length=500, examples=['shared = ["demand", "rain"] under [features]']
    )
    local: tuple[FeatureSettings, ...] = Field(default=(), max_length=500)

    @field_validator("shared", "local", mode="before")
    @classmethod
    def _names_or_tables(cls, value: Any) -> Any:
        """A feature may be written as its name alone."""
        if isinstance(value, list | tuple):
            return [{"name": item} if isinstance(item, str) else item for item in value]
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "FeaturesSettings":
        _ = self.space  # an InvalidParameter, which is a ValueError, says what is inconsistent
        return self

    @cached_property
    def space(self) -> FeatureSpace:
        return FeatureSpace(
            tuple(item.feature for item in self.shared), tuple(item.feature for item in self.local)
        )


class PolicySettings(BaseModel):
    """A policy's name; every other key is one of its parameters."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str = Field(default="netpool", max_length=100)

    @model_validator(mode="after")
    def _known(self) -> "PolicySettings":
        try:
            self.policy.learner(Shape(2, 1, 0))
        except OverflowError:
            raise ValueError("a parameter has too many digits for a floating-point number") from None
        return self

    @cached_property
    def policy(self) -> Policy:
        return make_policy(self.name, **(self.__pydantic_extra__ or {}))


def _check_url(url: str) -> None:
    from sqlalchemy.engine import make_url  # not needed for SQLite, and slow to load
    from sqlalchemy.exc import ArgumentError

    try:
        make_url(url)
    except (ValueError, ArgumentError):
        raise ValueError("must be written postgresql+psycopg://user:password@host:port/database") from None


class DatabaseSettings(Section):
    url: str = "sqlite:///pricemesh.db"
    lock_wait_seconds: float = Field(default=10.0, ge=0, le=600)  # until the previous process has gone
    timeout_seconds: float = Field(default=1.0, ge=0.1, le=60)  # of silence, then a commit fails
    read_timeout_seconds: float = Field(default=5.0, ge=0.1, le=600)

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


class ClockSettings(Section):
    max_step_seconds: float = Field(default=5.0, gt=0, le=3600)  # a larger step holds feedback windows open
    steady_seconds: float = Field(default=60.0, ge=0, le=86_400)  # until a new time is believed


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
    address: str | None = None  # where other cities reach this one; sent to cities that discover
    # Letters of other cities are refused; empty: all are accepted. A table names keys: { lisbon = "..." }.
    cities: tuple[str, ...] | dict[str, str] = ()
    most_cities: int = Field(default=256, ge=2, le=10_000)
    fan_out: int = Field(default=8, ge=1)
    timeout_seconds: float | None = Field(default=None, gt=0)  # for a peer's answer; default: one interval
    rate_per_second: float = Field(default=50.0, gt=0)  # requests accepted from one city
    lockstep: bool = False  # ticks come from `POST /admin/tick` instead of the clock

    @field_validator("cities", mode="before")
    @classmethod
    def _names_or_keys(cls, value: Any) -> Any:
        """A variable may write `lisbon=KEY,porto`."""
        if isinstance(value, str):
            value = [item.strip() for item in value.split(",") if item.strip()]
            if any("=" in item for item in value):
                value = {
                    name.strip(): key.strip() for name, _, key in (item.partition("=") for item in value)
                }
        texts = [*value, *value.values()] if isinstance(value, dict) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ValueError('must be a list of names, or a table { lisbon = "its key", porto = "" }')
        for name in value:
            if not re.fullmatch(CITY_NAME, name):
                raise ValueError(f"a city's name is {CITY_NAME_RULE}, not {name!r:.100}")
        return value

    @field_validator("cities")
    @classmethod
    def _keys(cls, cities: tuple[str, ...] | dict[str, str]) -> tuple[str, ...] | dict[str, str]:
        if isinstance(cities, dict):
            return {name: parse_city_key(key).hex() if key else "" for name, key in cities.items()}
        return cities

    @property
    def city_keys(self) -> dict[str, bytes]:
        """The keys that `cities` names."""
        if not isinstance(self.cities, dict):
            return {}
        return {name: bytes.fromhex(key) for name, key in self.cities.items() if key}

    @field_validator("peers", "secrets", mode="before")
    @classmethod
    def _by_comma(cls, value: Any) -> Any:
        return split_by_comma(value)

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
        ids = [parse_secret(text)[0] for text in secrets]
        if len(set(ids)) < len(ids):
            raise ValueError("two secrets have the same id: give each its own")
        return secrets


class SecuritySettings(Section):
    api_keys_file: Path | None = None
    rate_per_second: float | None = Field(default=None, gt=0)


class LimitSettings(Section):
    body_bytes: int = Field(default=4_194_304, ge=1024)
    batch_size: int = Field(default=1000, ge=1, le=10_000)
    event_readers: int = Field(default=64, ge=1, le=1000)  # open /events streams
    max_wait_seconds: float = Field(default=1.0, ge=0.05, le=60)  # for the database; then a 503
    connections: int = Field(default=4096, ge=1, le=1_000_000)  # open at once
    header_seconds: float = Field(default=10.0, gt=0, le=600)  # for the headers of a request to arrive
    body_seconds: float = Field(default=10.0, gt=0, le=600)  # for its body; more while it keeps coming


class LabSettings(Section):
    demo: bool = False  # accept the true regret from a driver that knows it: `POST /lab/truth`


class ServerSettings(Section):
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    hosts: tuple[str, ...] = Field(default=(), max_length=100)  # names it is called by, beside loopback ones
    drain_seconds: float = Field(default=0.5, ge=0, le=600)
    stop_with_stdin: bool = False  # stop at the end of standard input, so that no city outlives its parent
    fast_path: bool = True  # prices and feedback go from the HTTP parser to the city, not through ASGI
    access_log: bool = False  # log every request, not only refusals, errors and slow ones
    slow_seconds: float = Field(default=1.0, gt=0)  # a request that takes longer is logged

    @field_validator("hosts", mode="before")
    @classmethod
    def _by_comma(cls, value: Any) -> Any:
        return split_by_comma(value)

    @field_validator("hosts")
    @classmethod
    def _names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(checked_host, hosts))


class Settings(Section):
    city: str = Field(pattern=f"^{CITY_NAME}$", examples=['city = "lisbon"'])
    arms: ArmSettings = Field(examples=["[arms] with prices = [8.0, 9.0, 10.0]"])
    features: FeaturesSettings = Field(examples=['[features] with shared = ["demand", "rain"]'])
    reward: RewardSettings = Field(examples=[f"[reward] with {KINDS}"])
    policy: PolicySettings = PolicySettings()
    database: DatabaseSettings = DatabaseSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    clock: ClockSettings = ClockSettings()
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
            raise ValueError("guardrails: floor and ceiling exclude every price of arms.prices")
        return self

    @model_validator(mode="after")
    def _reward_fits(self) -> "Settings":
        self.reward.check(self.arms.prices, self.features.space)
        self.feedback.check(self.reward)
        return self

    @property
    def shape(self) -> Shape:
        space = self.features.space
        return Shape(len(self.arms.prices), len(space.shared), len(space.local))

    @property
    def margin(self) -> Margin | None:
        """How money follows from units sold; None in a city of values."""
        return self.reward.margin(self.features.space)

    @property
    def largest_reward(self) -> float:
        """In magnitude; it also bounds peers' summaries."""
        return self.reward.largest_reward(self.arms.prices, self.features.space)

    @property
    def schema_description(self) -> dict[str, Any]:
        """The arms and features that a database is made for, in their order, and what its rewards are."""
        return {
            "prices": list(self.arms.prices),
            "shared": [feature.name for feature in self.features.space.shared],
            "local": [feature.name for feature in self.features.space.local],
            "reward": self.reward.description,
        }

    @property
    def fingerprint(self) -> bytes:
        """The hash of `common`: cities exchange summaries only with cities of the same fingerprint."""
        return fingerprint(self.common)

    @property
    def common(self) -> dict[str, Any]:
        """What all cities of a group have in common: others could not read their summaries."""
        policy = self.policy.policy
        return {
            "prices": list(self.arms.prices),
            "shared": [[item.name, item.min, item.max] for item in self.features.space.shared],
            "policy": policy.name,
            "ridge": getattr(policy, "ridge", None),
            "reward": self.reward.description | {"scale": self.reward.scale},
            "largest_reward": self.largest_reward,
            "group": self.gossip.group,
        }

    @property
    def longest_square(self) -> float:
        """The largest squared length that a shared context within its bounds can have."""
        bounds = (max(abs(item.min), abs(item.max)) for item in self.features.space.shared)
        return min(sum(bound**2 for bound in bounds), MAX_CONTEXT_LENGTH**2)
