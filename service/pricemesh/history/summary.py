"""What a file of history holds, against what the city declares: an import shows it before it begins."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from pricemesh.city.settings import Settings
from pricemesh.core.arrays import Array, Ints
from pricemesh.history import columns as names
from pricemesh.history.tables import RowFault
from pricemesh.history.times import MAX_TIME, MIN_TIME

MAX_OTHER_PRICES = 1_000  # that are counted
SHOWN_PRICES = 10
MAX_COLUMNS_SHOWN = 50
MAX_EXAMPLES = 20  # of faults


class Summary:
    def __init__(self, settings: Settings, features: Sequence[str], ignored: Sequence[str]) -> None:
        space = settings.features.space
        self._bounds = dict(zip(features, (*space.shared, *space.local), strict=True))
        self._prices = settings.arms.prices
        self._outcome = names.SOLD if settings.reward.is_purchase else names.REWARD
        self.ignored = list(ignored)
        self.rows = self.good = self.answered = 0
        self.total = 0.0  # of what was sold, or of the rewards
        self.ranges = dict.fromkeys(features, (np.inf, -np.inf))
        self.outside: Counter[str] = Counter()  # rows by feature
        self.price_rows = np.zeros(len(self._prices), dtype=np.int64)
        self.unknown_prices: Counter[float] = Counter()  # faults
        self.learned_prices: Counter[float] = Counter()  # no arm's, and learned nevertheless
        self.first_time, self.last_time = np.inf, -np.inf
        self.is_in_order = True
        self.faults_by_column: Counter[str] = Counter()
        self.faulty = 0  # rows
        self.examples: list[RowFault] = []

    def add_feature(self, name: str, values: Array, outside: int) -> None:
        known = values[np.isfinite(values)]
        if known.size:
            low, high = self.ranges[name]
            self.ranges[name] = min(low, float(known.min())), max(high, float(known.max()))
        self.outside[name] += outside

    def add_arms(self, arms: Ints) -> None:
        self.price_rows += np.bincount(arms, minlength=len(self._prices))

    def add_other_price(self, price: float, *, is_learned: bool) -> None:
        """One that is no arm's."""
        prices = self.learned_prices if is_learned else self.unknown_prices
        if price in prices or len(prices) < MAX_OTHER_PRICES:
            prices[price] += 1

    def add_batch(
        self,
        times: Sequence[float | None],
        amounts: Sequence[float | None],
        faults: Sequence[RowFault],
        rows: int,
    ) -> None:
        self.rows += rows
        self.good += len(times)
        answered = [amount for amount in amounts if amount is not None]
        self.answered += len(answered)
        self.total += sum(answered)
        self._add_times(np.array([moment for moment in times if moment is not None], dtype=np.float64))
        self.faults_by_column.update(fault.column for fault in faults)
        self.faulty += len({fault.line for fault in faults})
        self.examples += faults[: MAX_EXAMPLES - len(self.examples)]

    def _add_times(self, moments: Array) -> None:
        if moments.size:
            is_in_order = moments[0] >= self.last_time and bool((np.diff(moments) >= 0.0).all())
            self.is_in_order = self.is_in_order and is_in_order
            self.first_time = min(self.first_time, float(moments.min()))
            self.last_time = max(self.last_time, float(moments.max()))

    def lines(self) -> list[str]:
        """For a person to read."""
        return [
            f"{self.rows:,} rows, {self.good:,} of them can be imported, {self.faulty:,} cannot",
            *self._time_lines(),
            f"{self.answered:,} rows with `{self._outcome}`, {self.total:g} in all; "
            f"{self.good - self.answered:,} without feedback that counts",
            *self._price_lines(),
            *self._feature_lines(),
            *([f"columns that are ignored: {', '.join(self.ignored)}"] if self.ignored else []),
            *self._fault_lines(),
        ]

    def _time_lines(self) -> list[str]:
        if self.first_time > self.last_time:
            return ["no times"]
        order = "" if self.is_in_order else ", not in their order"
        return [f"from {_shown(self.first_time)} to {_shown(self.last_time)}{order}"]

    def _price_lines(self) -> list[str]:
        counts = zip(self._prices, self.price_rows.tolist(), strict=True)
        lines = ["prices: " + ", ".join(f"{price:g} ({count:,})" for price, count in counts)]
        lines += _prices_line("other prices, which count for the curve of demand", self.learned_prices)
        return lines + _prices_line("prices that are no arm", self.unknown_prices)

    def _feature_lines(self) -> list[str]:
        lines = []
        for name, (low, high) in self.ranges.items():
            feature = self._bounds[name]
            seen = "no numbers" if low > high else f"{low:g} to {high:g}"
            outside = f"; {self.outside[name]:,} rows outside" if self.outside[name] else ""
            lines.append(f"{name}: {seen}, declared {feature.min:g} to {feature.max:g}{outside}")
        return lines

    def _fault_lines(self) -> list[str]:
        if not self.faulty:
            return []
        common = self.faults_by_column.most_common(MAX_COLUMNS_SHOWN)
        counts = ", ".join(f"{name or 'whole lines'} {count:,}" for name, count in common)
        lines = [f"faults by column: {counts}"]
        for fault in self.examples:
            where = f", {fault.column}" if fault.column else ""
            lines.append(f"line {fault.line:,}{where}: {fault.reason}")
        return lines


def _prices_line(text: str, prices: Counter[float]) -> list[str]:
    if not prices:
        return []
    common = prices.most_common(SHOWN_PRICES)
    shown = ", ".join(f"{price:g} ({count:,})" for price, count in common)
    more = f" and {len(prices) - len(common):,} more" if len(prices) > len(common) else ""
    return [f"{text}: {shown}{more}"]


def _shown(seconds: float) -> str:
    moment = datetime.fromtimestamp(min(max(seconds, MIN_TIME), MAX_TIME), UTC)
    return moment.isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")
