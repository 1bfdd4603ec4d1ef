"""The configuration of a city: what it prices and learns, and all of its sections together.

Frozen once read. How a file and variables become one of these, and how faults are worded: `configuration`.
Every key has a description: docs/reference/configuration.md is made of them.
"""

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pricemesh.city.addresses import CITY_NAME
from pricemesh.city.display_settings import DisplaySettings
from pricemesh.city.gossip_settings import GossipSettings
from pricemesh.city.operating_settings import (
    ClockSettings,
    DatabaseSettings,
    GuardrailSettings,
    LabSettings,
    LimitSettings,
    SecuritySettings,
    ServerSettings,
)
from pricemesh.city.reward import KINDS, FeedbackSettings, RewardSettings
from pricemesh.city.section import Section
from pricemesh.core.arrays import MAX_CONTEXT_LENGTH
from pricemesh.core.decision import Margin
from pricemesh.core.features import Feature, FeatureSpace
from pricemesh.core.ladder import Ladder
from pricemesh.core.policies import Learner, Policy, Shape, make_policy
from pricemesh.core.summary import fingerprint


class FeatureSettings(Section):
    """A feature without bounds lies within ±10,000: larger numbers call for another unit."""

    name: str = Field(
        min_length=1,
        max_length=100,
        examples=['name = "rain"'],
        description="As requests spell it.",
    )
    min: float = Field(default=-1e4, ge=-1e5, le=1e5, description="Smaller values are refused with a 422.")
    max: float = Field(default=1e4, ge=-1e5, le=1e5, description="Larger values are refused with a 422.")

    @property
    def feature(self) -> Feature:
        return Feature(self.name, self.min, self.max)


class ArmSettings(Section):
    prices: tuple[float, ...] = Field(
        min_length=2,
        max_length=1000,
        examples=["prices = [8.0, 9.0, 10.0] under [arms]"],
        description="The ladder, ascending. A city that has learned changes it with `pricemesh reshape`.",
    )
    range: tuple[float, float] | None = Field(
        default=None,
        description="The range of prices that a mesh whose cities have different ladders agrees on; for the "
        "policy `demand`.",
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

    @model_validator(mode="after")
    def _within_range(self) -> "ArmSettings":
        if self.range is not None and not self.range[0] <= self.prices[0] < self.prices[-1] <= self.range[1]:
            low, high = self.range
            raise ValueError(f"range must contain every price, and {low:g} to {high:g} does not")
        return self


class FeaturesSettings(Section):
    shared: tuple[FeatureSettings, ...] = Field(
        min_length=1,
        max_length=500,
        examples=['shared = ["demand", "rain"] under [features]'],
        description="Features with the same meaning in all cities of the mesh: names, or tables with bounds.",
    )
    local: tuple[FeatureSettings, ...] = Field(
        default=(), max_length=500, description="Features of this city alone; nothing about them is sent."
    )

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
    name: str = Field(
        default="netpool",
        max_length=100,
        description="Which policy learns and chooses; `demand` by default in a city of purchases.",
    )
    seed: int = Field(
        default=0, ge=0, lt=2**63, description='Of the draws with `exploration = "thompson"`; no secret.'
    )

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


class Settings(Section):
    city: str = Field(
        pattern=f"^{CITY_NAME}$",
        examples=['city = "lisbon"'],
        description="The name under which callers and peers know the city.",
    )
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
