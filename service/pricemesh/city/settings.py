"""The configuration of a city: its sections, keys, defaults and limits.

Frozen once read. How a file and variables become one of these, and how faults are worded: `configuration`.
"""

from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pricemesh.city.addresses import CITY_NAME, checked_host
from pricemesh.city.display_settings import DisplaySettings
from pricemesh.city.gossip_settings import GossipSettings
from pricemesh.city.reward import KINDS, FeedbackSettings, RewardSettings
from pricemesh.city.section import Section, split_by_comma
from pricemesh.core.arrays import MAX_CONTEXT_LENGTH
from pricemesh.core.decision import Margin
from pricemesh.core.features import Feature, FeatureSpace
from pricemesh.core.ladder import Ladder
from pricemesh.core.policies import Learner, Policy, Shape, make_policy
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
    # The range of prices that a mesh whose cities have different prices agrees on; for the policy demand.
    range: tuple[float, float] | None = None

    @field_validator("prices")
    @classmethod
    def _ascending(cls, prices: tuple[float, ...]) -> tuple[float, ...]:
        if min(prices) < 0:
            raise ValueError(f"a price must be 0 or more, not {min(prices):g}")
        for low, high in pairwise(prices):
            if low >= high:
                raise ValueError(f"prices must ascend, and {high:g} comes after {low:g}")
        return prices

    @model_validator(mode="after")
    def _within_range(self) -> "ArmSettings":
        if self.range is not None and not self.range[0] <= self.prices[0] < self.prices[-1] <= self.range[1]:
            low, high = self.range
            raise ValueError(f"range must contain every price, and {low:g} to {high:g} does not")
        return self


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
    """A policy's name, and the seed of a randomised choice; every other key is one of its parameters."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str = Field(default="netpool", max_length=100)
    seed: int = Field(default=0, ge=0, lt=2**63)  # of the draws with exploration = "thompson"; no secret

    @model_validator(mode="after")
    def _known(self) -> "PolicySettings":
        try:
            self.policy.learner(Shape(2, 1, 0, ladder=Ladder(np.array([1.0, 2.0]), 1.0, 2.0)))
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
    replicas: bool = False  # other processes serve this city from the same database, too
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
    # A connection without a request stays open so long: longer than load balancers keep one, which would
    # otherwise send requests into connections that are being closed.
    idle_seconds: float = Field(default=75.0, gt=0, le=3600)


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
    display: DisplaySettings = DisplaySettings()
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

    @model_validator(mode="before")
    @classmethod
    def _default_policy(cls, values: Any) -> Any:
        """Cities of purchases model what sells, unless they are told otherwise."""
        if not isinstance(values, dict):
            return values
        reward, policy = values.get("reward"), values.get("policy", {})
        if isinstance(reward, dict) and reward.get("kind") == "purchase" and isinstance(policy, dict):
            return {**values, "policy": {"name": "demand", **policy}}
        return values

    @model_validator(mode="after")
    def _policy_fits(self) -> "Settings":
        if self.policy.name == "demand" and not self.reward.is_purchase:
            raise ValueError(
                'policy: demand learns from sales: write kind = "purchase" under [reward], '
                'or name = "netpool" under [policy]'
            )
        if self.arms.range is not None and self.policy.name != "demand":
            raise ValueError(
                "arms: range is for the policy demand: others need the same prices in all cities"
            )
        return self

    @model_validator(mode="after")
    def _replicas_fit(self) -> "Settings":
        if not self.database.replicas:
            return self
        if self.database.url.startswith("sqlite:"):
            raise ValueError(
                "database: replicas need Postgres, because a file of SQLite belongs to one process"
            )
        if self.policy.policy.learner(self.shape).mixes_peers:
            raise ValueError(
                f"policy: {self.policy.name} changes its own state at every tick, which replicas would have "
                "to agree on: choose netpool or netlinucb, or leave database.replicas out"
            )
        return self

    @cached_property
    def shape(self) -> Shape:
        space = self.features.space
        return Shape(len(self.arms.prices), len(space.shared), len(space.local), ladder=self._ladder)

    def learner(self) -> Learner:
        """A new one. Where the unit of rewards matters, it learns them as multiples of `reward.scale`."""
        learner = self.policy.policy.learner(self.shape)
        if not learner.is_unit_free:
            learner.unit = self.reward.scale
        return learner

    @property
    def _ladder(self) -> Ladder | None:
        """What the arms bring; None in a city of values."""
        if (margin := self.margin) is None:
            return None
        low, high = self.arms.range or (self.arms.prices[0], self.arms.prices[-1])
        prices, is_common = np.array(self.arms.prices), self.arms.range is None
        return Ladder(prices, low, high, margin.cost, margin.cost_feature, self.reward.max_units, is_common)

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
        space = self.features.space
        return {
            "prices": list(self.arms.prices),
            "shared": [feature.name for feature in space.shared],
            "local": [feature.name for feature in space.local],
            "bounds": [[feature.min, feature.max] for feature in (*space.shared, *space.local)],
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
        common = {
            "shared": [[item.name, item.min, item.max] for item in self.features.space.shared],
            "policy": policy.name,
            "reward": self.reward.description,
            "group": self.gossip.group,
        }
        if policy.name == "demand":  # its summaries tell of sales, whatever they cost
            prices = (
                {"prices": list(self.arms.prices)} if self.arms.range is None else {"range": self.arms.range}
            )
            return common | prices
        return common | {
            "prices": list(self.arms.prices),
            "ridge": getattr(policy, "ridge", None),
            "scale": self.reward.scale,
            "largest_reward": self.largest_reward,
        }

    @property
    def longest_square(self) -> float:
        """The largest squared length that a shared context within its bounds can have."""
        bounds = (max(abs(item.min), abs(item.max)) for item in self.features.space.shared)
        return min(sum(bound**2 for bound in bounds), MAX_CONTEXT_LENGTH**2)
