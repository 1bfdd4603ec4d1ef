"""The arms of a city of sales: their prices, the range on which these are scaled, the cost of a unit.

>>> import numpy as np
>>> ladder = Ladder(np.array([8.0, 10.0, 12.0]), low=8.0, high=12.0, cost=2.0)
>>> ladder.positions.tolist()
[-1.0, 0.0, 1.0]
>>> ladder.margins(np.array([0.3])).tolist()
[6.0, 8.0, 10.0]
"""

from dataclasses import dataclass

from pricemesh.core.arrays import Array
from pricemesh.errors import InvalidParameter


@dataclass(frozen=True, eq=False)
class Ladder:
    """Prices (K,) of one city, or (..., K) of a batch. Cities of one mesh agree on `low` and `high`; only if
    they also agree on the prices may they share what single prices have beyond the curve (`is_common`)."""

    prices: Array
    low: float
    high: float
    cost: float = 0.0  # of one unit
    cost_feature: int | None = None  # in place of `cost`: its index in the context
    max_units: int = 1
    is_common: bool = True

    def __post_init__(self) -> None:
        if not self.low < self.high or self.prices.min() < self.low or self.prices.max() > self.high:
            raise InvalidParameter(
                f"the price range {self.low:g} to {self.high:g} must contain every price of the ladder"
            )

    @property
    def positions(self) -> Array:
        """u (..., K): prices scaled to [-1, 1] over the range."""
        return self.positions_of(self.prices)

    def positions_of(self, prices: Array) -> Array:
        """Also of prices that are no arms."""
        return 2.0 * (prices - self.low) / (self.high - self.low) - 1.0

    def margins(self, x: Array) -> Array:
        """What a decision earns if all units are sold, (..., K), for contexts x (..., d)."""
        return self.margins_at(x, self.prices)

    def margins_at(self, x: Array, prices: Array) -> Array:
        """As `margins`, also at prices that are no arms."""
        cost = self.cost if self.cost_feature is None else x[..., self.cost_feature, None]
        return self.max_units * (prices - cost)

    def largest_margin(self, max_cost: float) -> float:
        """The largest reward in size."""
        return self.max_units * max(float(self.prices.max()), max_cost)
