"""What a reward is and how long a decision waits for it: the sections [reward] and [feedback].

In a city of purchases feedback says how many units were sold, and the city computes the money. In a city of
values feedback gives the reward itself.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from pricemesh.city.section import Section
from pricemesh.core.decision import Margin
from pricemesh.core.features import Feature, FeatureSpace

MAX_REWARD = 1e12
KINDS = (
    'kind = "purchase" (feedback says how many units were `sold`; the reward is (price - cost) * sold), or '
    'kind = "value" and largest = 100.0 (feedback gives the `reward` itself, in any unit, at most this large '
    "either way)"
)


class RewardSettings(Section):
    kind: Literal["purchase", "value"] = Field(
        examples=[KINDS],
        description="`purchase`: feedback says how many units were `sold`, and the reward is (price - cost) "
        "× sold. `value`: feedback gives the `reward` itself.",
    )
    cost: float | str = Field(
        default=0.0, description="Of a unit: a number, or the name of a feature. For `purchase`."
    )
    max_units: int = Field(
        default=1, ge=1, le=1_000_000, description="That one decision may sell. For `purchase`."
    )
    largest: float | None = Field(
        default=None,
        gt=0,
        le=MAX_REWARD,
        validate_default=True,
        description="More, either way, is refused, from callers and from peers. Needed with `value`.",
    )
    scale: float = Field(
        default=1.0,
        gt=0,
        le=MAX_REWARD,
        description="A usual reward, the same in the whole mesh, for policies that expect rewards near 1.",
    )

    @field_validator("cost", mode="before")
    @classmethod
    def _number_or_name(cls, value: Any) -> Any:
        """A variable is always text; text that reads as a number is one."""
        if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
            raise ValueError("must be a number or the name of a feature")
        try:
            number = float(value)
        except ValueError:
            return value
        except OverflowError:
            number = float("inf")
        if not 0 <= number <= MAX_REWARD:
            raise ValueError(f"must be from 0 to {MAX_REWARD:g}, or the name of a feature, not {number:g}")
        return number

    @field_validator("cost", "max_units")
    @classmethod
    def _only_of_purchases(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("kind") == "value":
            raise ValueError('belongs to kind = "purchase"; with kind = "value" feedback gives the reward')
        return value

    @field_validator("largest")
    @classmethod
    def _only_of_values(cls, value: float | None, info: ValidationInfo) -> float | None:
        kind = info.data.get("kind")
        if kind == "value" and value is None:
            raise ValueError(
                "is missing: write largest = 100.0 under [reward], the largest reward, either way, that "
                "feedback may give"
            )
        if kind == "purchase" and value is not None:
            raise ValueError(
                'belongs to kind = "value"; with kind = "purchase" prices, cost and max_units bound a reward'
            )
        return value

    @property
    def is_purchase(self) -> bool:
        return self.kind == "purchase"

    @model_serializer(mode="wrap")
    def _without_other_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        other = {"largest"} if self.is_purchase else {"cost", "max_units"}
        return {key: value for key, value in handler(self).items() if key not in other}

    @property
    def description(self) -> dict[str, Any]:
        """What a database is made for."""
        return {"kind": self.kind, "max_units": self.max_units} if self.is_purchase else {"kind": self.kind}

    def margin(self, space: FeatureSpace) -> Margin | None:
        """How money follows from units sold; None in a city of values."""
        if not self.is_purchase:
            return None
        if isinstance(self.cost, float):
            return Margin(self.cost)
        return Margin(0.0, [feature.name for feature in _features(space)].index(self.cost))

    def largest_reward(self, prices: Sequence[float], space: FeatureSpace) -> float:
        """In magnitude; it also bounds peers' summaries."""
        if self.largest is not None:
            return self.largest
        low, high = self._cost_bounds(space)
        return max(prices[-1] - low, high - prices[0]) * self.max_units

    def check(self, prices: Sequence[float], space: FeatureSpace) -> None:
        """A ValueError says what does not fit the prices and features of the city."""
        if isinstance(self.cost, str):
            count = [feature.name for feature in _features(space)].count(self.cost)
            if count == 0:
                raise ValueError(
                    f"reward: cost names no feature {self.cost!r:.100}: declare it under [features], or "
                    "write a number"
                )
            if count > 1:
                raise ValueError(
                    f"reward: cost names {self.cost!r:.100}, a shared and a local feature: rename one"
                )
        if self.largest_reward(prices, space) > MAX_REWARD:
            raise ValueError(f"reward: a sale may bring more than {MAX_REWARD:g}: count in a larger unit")

    def _cost_bounds(self, space: FeatureSpace) -> tuple[float, float]:
        if isinstance(self.cost, float):
            return self.cost, self.cost
        feature = next(feature for feature in _features(space) if feature.name == self.cost)
        return feature.min, feature.max


class FeedbackSettings(Section):
    window_seconds: float = Field(
        default=604_800.0, gt=0, description="How long a decision waits; later feedback is a 410."
    )
    default_reward: float | None = Field(
        default=None,
        ge=-1e12,
        le=1e12,
        description="What a decision of a city of values brought whose window closes unanswered; without it "
        "nothing is learned from it.",
    )
    default_sold: float | None = Field(
        default=None, ge=0, description="The same in a city of purchases, in units."
    )

    @property
    def default_amount(self) -> float | None:
        """Units sold, or the reward, by the city's kind."""
        return self.default_reward if self.default_sold is None else self.default_sold

    def check(self, reward: RewardSettings) -> None:
        """A ValueError says which default does not fit what a reward is."""
        if reward.is_purchase and self.default_reward is not None:
            raise ValueError("feedback: a city of purchases has default_sold, not default_reward")
        if not reward.is_purchase and self.default_sold is not None:
            raise ValueError("feedback: a city of values has default_reward, not default_sold")
        if self.default_sold is not None and self.default_sold > reward.max_units:
            raise ValueError("feedback: default_sold must not be larger than reward.max_units")
        if reward.largest is not None and abs(self.default_reward or 0.0) > reward.largest:
            raise ValueError("feedback: default_reward must not be larger in magnitude than reward.largest")


def _features(space: FeatureSpace) -> tuple[Feature, ...]:
    """In the order of a context's vector."""
    return (*space.shared, *space.local)
