"""What was sold per hour, day or week, as people read it: the sums of the store in the money, units and time
zone of the configuration. `/sales`, the page and `pricemesh sales` show the same."""

from itertools import islice
from typing import Any, NamedTuple

from pricemesh.city.settings import Settings
from pricemesh.errors import InvalidParameter
from pricemesh.store.calendar import HOUR_SECONDS, Calendar, Per
from pricemesh.store.reads import Reader
from pricemesh.store.sales import NO_ARM_PRICE, SalesSums
from pricemesh.store.sales_reads import SalesRead, read_lowest_price, read_sales

MAX_BUCKETS = 1200
MIN_TIME, MAX_TIME = 0.0, 253_370_764_800.0  # Unix seconds; the years 1970 to 9998
DAY_SECONDS = 24 * HOUR_SECONDS
DEFAULT_SECONDS = {Per.HOUR: 7 * DAY_SECONDS, Per.DAY: 90 * DAY_SECONDS, Per.WEEK: 104 * 7 * DAY_SECONDS}
COARSER = {Per.HOUR: "per=day", Per.DAY: "per=week", Per.WEEK: "a later since"}
REDUCTION_SECONDS = 30 * DAY_SECONDS  # before an announced price reduction, for which its lowest price counts
WHOLE_LADDER = "all"  # the one group of arms: every price of a city is for the same thing


class SalesQuery(NamedTuple):
    per: Per = Per.DAY
    since: float | None = None  # Unix seconds; None: DEFAULT_SECONDS before `until`
    until: float | None = None  # None: now
    by_arm: bool = False


def sales_of(settings: Settings, reader: Reader, query: SalesQuery, now: float) -> dict[str, Any]:
    """Reads from the database, so it is called from a thread."""
    display = settings.display
    calendar = Calendar(display.time_zone, query.per)
    starts = _starts(calendar, query, now)
    end = calendar.after(starts[-1])

    def read(connection: Any) -> SalesRead:
        return read_sales(connection, display.time_zone, query.per, starts[0], end, by_arm=query.by_arm)

    found = reader.read_at_once(read)
    by_start: dict[int, dict[float, SalesSums]] = {start: {} for start in starts}
    for (start, price), sums in found.groups.items():
        by_start.setdefault(start, {})[price] = sums
    view = _View(settings, now - settings.feedback.window_seconds, query.by_arm)
    total = SalesSums()
    for by_price in by_start.values():
        for sums in by_price.values():
            total = total.plus(sums)
    return {
        "city": settings.city,
        "currency": display.currency,
        "unit": display.unit,
        "time_zone": display.time_zone,
        "per": query.per.value,
        "since": starts[0],
        "until": end,
        "complete": found.is_complete,
        "total": view.figures(total),
        "buckets": [
            view.bucket(start, calendar.after(start), by_price)
            for start, by_price in sorted(by_start.items())
        ],
    }


def _starts(calendar: Calendar, query: SalesQuery, now: float) -> list[int]:
    until = now if query.until is None else query.until
    since = until - DEFAULT_SECONDS[query.per] if query.since is None else query.since
    since = max(MIN_TIME, since)
    if not since < until <= MAX_TIME:
        raise InvalidParameter("since must be before until, and both in the years 1970 to 9998")
    starts = list(islice(calendar.starts(since, until), MAX_BUCKETS + 1))
    if len(starts) > MAX_BUCKETS:
        raise InvalidParameter(
            f"more than {MAX_BUCKETS} buckets of one {query.per}: ask for a shorter time, or for "
            f"{COARSER[query.per]}"
        )
    return starts


class _View:
    """Sums as the fields of an answer."""

    def __init__(self, settings: Settings, window_start: float, by_arm: bool) -> None:
        self._is_purchase = settings.reward.is_purchase
        self._window_start = window_start
        self._by_arm = by_arm
        self._arms = {price: arm for arm, price in enumerate(settings.arms.prices)}

    def bucket(self, start: int, end: int, by_price: dict[float, SalesSums]) -> dict[str, Any]:
        total = SalesSums()
        for sums in by_price.values():
            total = total.plus(sums)
        fields = {"start": start, "end": end, "open": end > self._window_start, **self.figures(total)}
        if self._by_arm:
            fields["arms"] = [self._arm(price, sums) for price, sums in sorted(by_price.items())]
        return fields

    def _arm(self, price: float, sums: SalesSums) -> dict[str, Any]:
        known_price = None if price == NO_ARM_PRICE else price
        return {"arm": self._arms.get(price), "price": known_price, **self.figures(sums)}

    def figures(self, sums: SalesSums) -> dict[str, Any]:
        sells = self._is_purchase
        counted = sums.decisions - sums.retracted
        return {
            "decisions": sums.decisions,
            "answered": sums.answered,
            "defaults": sums.defaults,
            "retracted": sums.retracted,
            "bought": sums.bought if sells else None,
            "sold": sums.sold if sells else None,
            "revenue": sums.revenue if sells else None,
            "reward": sums.reward,
            "conversion": sums.bought / counted if sells and counted > 0 else None,
            "mean_reward": sums.reward / counted if counted > 0 else None,
            "mean_price": sums.price_total / sums.decisions if sums.decisions else None,
            "mean_price_paid": sums.revenue / sums.sold if sells and sums.sold > 0 else None,
            "lowest_price": sums.lowest_price,
        }


def lowest_prices(settings: Settings, reader: Reader, now: float) -> dict[str, Any]:
    """The lowest price that was offered today or in the 30 days before, for each group of arms: the whole
    ladder is one. As EU rules on price reductions ask for; reads from the database."""
    since = now - REDUCTION_SECONDS
    price, is_complete = reader.read_at_once(lambda connection: read_lowest_price(connection, since))
    start = Calendar(settings.display.time_zone, Per.DAY).start_of(max(MIN_TIME, since))
    return {"since": start, "complete": is_complete, "groups": [{"group": WHOLE_LADDER, "price": price}]}
