"""Sums of sales as plain values: what a rollup holds, how far the rollups follow the rows, and the commands
that bring them up to date. SQL is in `sales_queries`, `sales_folding` and `sales_reads`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

QUARTER_SECONDS = 900  # every zone is an integer number of quarters away from UTC
NO_ARM_PRICE = -1.0  # in place of an arm's price, for decisions at a price that was no arm's


class SalesSums(NamedTuple):
    """Of some decisions. Retracted feedback is in `retracted` and in none of the others."""

    decisions: int = 0
    price_total: float = 0.0
    answered: int = 0  # feedback of callers
    defaults: int = 0  # feedback given when a window closed
    bought: int = 0  # feedback that sold anything
    sold: float = 0.0  # units
    revenue: float = 0.0  # price * units
    reward: float = 0.0
    retracted: int = 0
    lowest_price: float | None = None  # of the decisions

    def plus(self, other: "SalesSums") -> "SalesSums":
        lowest, other_lowest = self.lowest_price, other.lowest_price
        if lowest is None or (other_lowest is not None and other_lowest < lowest):
            lowest = other_lowest
        return SalesSums(
            self.decisions + other.decisions,
            self.price_total + other.price_total,
            self.answered + other.answered,
            self.defaults + other.defaults,
            self.bought + other.bought,
            self.sold + other.sold,
            self.revenue + other.revenue,
            self.reward + other.reward,
            self.retracted + other.retracted,
            lowest,
        )

    def of_feedback_taken_back(self) -> "SalesSums":
        """What is added to the sums when this feedback is retracted."""
        return SalesSums(
            answered=-self.answered,
            defaults=-self.defaults,
            bought=-self.bought,
            sold=-self.sold,
            revenue=-self.revenue,
            reward=-self.reward,
            retracted=self.answered + self.defaults,
        )

    def of_feedback_restored(self) -> "SalesSums":
        return self._replace(retracted=-(self.answered + self.defaults))


SUM_COLUMNS = SalesSums._fields[:-1]  # which are added up
GroupKey = tuple[int, float]  # start in Unix seconds, price of the arm
Groups = Mapping[GroupKey, SalesSums]


def total_of(*parts: Iterable[tuple[GroupKey, SalesSums]]) -> dict[GroupKey, SalesSums]:
    """Groups of the same key added up."""
    totals: dict[GroupKey, SalesSums] = {}
    for part in parts:
        for key, sums in part:
            totals[key] = totals[key].plus(sums) if key in totals else sums
    return totals


class SalesProgress(NamedTuple):
    """Which rows the rollups hold: decisions and feedback up to these numbers, without what was retracted up
    to this rewrite of the past. Days are those of the zone."""

    decision: int
    feedback: int
    rewrites: int
    time_zone: str


@dataclass(frozen=True, slots=True)
class FoldSales:
    """Add groups that were read from the rows after `before` and up to `after`, unless somebody else has
    counted these rows meanwhile. The result is whether they were added."""

    before: SalesProgress
    after: SalesProgress
    groups: Groups  # by quarter of an hour
    size: int = 1


@dataclass(frozen=True, slots=True)
class FoldRetractions:
    """Subtract feedback that is retracted, add what is not any more. `rewrites` says that these are all up to
    that rewrite of the past; None: there are more. The result is whether the progress was recorded."""

    numbers: Sequence[int]  # of feedback that the rollups hold, or do not, against `retracted`
    rewrites: int | None
    size: int = 1
