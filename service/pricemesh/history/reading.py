"""The rows of a file as what a city would have decided and heard: checked, typed, chunk by chunk.

Knows a city's configuration and no database. A row is either in a batch, or has faults: where, and why.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, tzinfo
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pricemesh.city.settings import Settings
from pricemesh.core.arrays import Array, Ints
from pricemesh.core.decision import NO_ARM
from pricemesh.errors import InvalidParameter
from pricemesh.history import columns as names
from pricemesh.history.chunk_columns import ChunkColumns
from pricemesh.history.seen_ids import SeenIds
from pricemesh.history.summary import Summary
from pricemesh.history.tables import RowFault, Table

PRICE_TOLERANCE = 1e-9  # relative: files round
SHOWN_PRICES = 20
SMALLEST = float(np.nextafter(0.0, 1.0))
MAX_VERSION = 2.0**53
OPTIONAL = (
    names.TIME,
    names.DECISION_ID,
    names.PROPENSITY,
    names.SUBJECT,
    names.CHANCE,
    names.FEEDBACK_VERSION,
    names.RETRACTED,
)


class Batch(NamedTuple):
    """m rows without a fault, and the faults of others. An optional value is None where the file has none."""

    lines: list[int]
    decision_ids: list[str | None]
    times: list[float | None]  # Unix seconds
    subjects: list[str | None]
    contexts: Array  # (m, d)
    prices: Array  # (m,), those of the ladder where a file rounds them
    arms: Ints  # (m,); NO_ARM at another price, from which the policy learns nevertheless
    amounts: list[float | None]  # units sold or the reward; None: no feedback
    propensities: list[float | None]
    chances: list[float | None]  # of a sale, as predicted by who decided
    versions: list[float | None]  # of the learner with this feedback, in the city it comes from
    faults: list[RowFault]


class HistoryReader:
    """Reads a table for a city. `latest` is the time after which nothing can have happened yet."""

    def __init__(
        self, settings: Settings, table: Table, *, zone: tzinfo = UTC, latest: float | None = None
    ) -> None:
        self._settings = settings
        self._table = table
        self._zone = zone
        self._latest = latest
        space = settings.features.space
        self._features = dict(zip(names.feature_columns(space), (*space.shared, *space.local), strict=True))
        self._prices = np.array(settings.arms.prices)
        self._reads_price = settings.learner().reads_price
        self._outcome = names.SOLD if settings.reward.is_purchase else names.REWARD
        self._check_columns()
        used = {*self._features, names.PRICE, self._outcome, *OPTIONAL}
        ignored = [name for name in table.columns if name not in used]
        self.summary = Summary(settings, list(self._features), ignored)

    def _check_columns(self) -> None:
        needed = [*self._features, names.PRICE, self._outcome]
        missing = [name for name in needed if name not in self._table.columns]
        if missing:
            raise InvalidParameter(
                f"the file has no column {', '.join(missing)}: name the columns that they are with --map "
                f"COLUMN=NAME. It has {', '.join(self._table.columns[:50])}"
            )

    @property
    def file_names(self) -> list[str]:
        """The file's own columns, as the cells of a fault have them."""
        return self._table.file_names

    def batches(self) -> Iterator[Batch]:
        """Once through the file. `summary` is complete afterwards."""
        seen = SeenIds()
        try:
            for chunk in self._table.chunks():
                columns = ChunkColumns(self._table, chunk, self._zone, self._latest)
                batch = self._batch(columns, seen)
                rows = len(chunk.faults) + len(chunk.lines)
                self.summary.add_batch(batch.times, batch.amounts, batch.faults, rows)
                yield batch
        finally:
            seen.close()

    def _batch(self, columns: ChunkColumns, seen: SeenIds) -> Batch:
        contexts = np.empty((columns.size, len(self._features)))
        for place, name in enumerate(self._features):
            contexts[:, place] = self._feature(name, columns)
        prices, arms = self._arms(columns)
        amounts = self._amounts(columns)
        times = columns.times(names.TIME)
        propensities = columns.numbers_within(names.PROPENSITY, SMALLEST, 1.0, _no_probability)
        chances = columns.numbers_within(names.CHANCE, 0.0, 1.0, _no_chance)
        versions = columns.numbers_within(names.FEEDBACK_VERSION, 1.0, MAX_VERSION, _no_version)
        amounts[self._not_learned(columns, versions)] = np.nan
        subjects, ids = columns.subjects(names.SUBJECT), columns.identifiers(names.DECISION_ID)
        _refuse_repeated(ids, seen, columns)
        good = columns.good_rows
        return Batch(
            [columns.lines[row] for row in good],
            [ids[row] for row in good],
            _optional(times[good]),
            [subjects[row] for row in good],
            contexts[good],
            prices[good],
            arms[good],
            _optional(amounts[good]),
            _optional(propensities[good]),
            _optional(chances[good]),
            _optional(versions[good]),
            columns.faults(),
        )

    def _not_learned(self, columns: ChunkColumns, versions: Array) -> list[int]:
        """Rows whose feedback the city that exported them did not count: it was retracted, or came while
        learning was frozen and has no version."""
        rows = columns.flags(names.RETRACTED)
        if names.FEEDBACK_VERSION in self._table.columns:
            rows += np.flatnonzero(np.isnan(versions)).tolist()
        return rows

    def _feature(self, name: str, columns: ChunkColumns) -> Array:
        feature, values = self._features[name], columns.numbers(name)
        outside = (values < feature.min) | (values > feature.max)
        for row in np.flatnonzero(outside).tolist():
            columns.add_fault(row, name, f"{values[row]:g} is outside [{feature.min:g}, {feature.max:g}]")
        self.summary.add_feature(name, values, int(outside.sum()))
        return values

    def _arms(self, columns: ChunkColumns) -> tuple[Array, Ints]:
        """Prices and arms; NO_ARM at another price, from which the policy learns nevertheless."""
        values = columns.numbers(names.PRICE)
        prices = np.nan_to_num(values)
        arms: Ints = np.abs(prices[:, None] - self._prices).argmin(axis=1)
        distances = np.abs(prices - self._prices[arms])
        is_known = np.isfinite(values)
        is_arm = is_known & (distances <= PRICE_TOLERANCE * np.maximum(1.0, np.abs(prices)))
        for row in np.flatnonzero(is_known & ~is_arm).tolist():
            price = float(prices[row])
            arms[row] = NO_ARM
            is_learned = self._reads_price(price)
            if not is_learned:
                columns.add_fault(row, names.PRICE, f"{price:g} is no arm's price; {self._ladder_text}")
            self.summary.add_other_price(price, is_learned=is_learned)
        self.summary.add_arms(arms[is_arm])
        return np.where(is_arm, self._prices[arms], prices), arms

    @cached_property
    def _ladder_text(self) -> str:
        ladder = ", ".join(f"{price:g}" for price in self._prices[:SHOWN_PRICES])
        return f"there are {ladder}" + (", ..." if len(self._prices) > SHOWN_PRICES else "")

    def _amounts(self, columns: ChunkColumns) -> Array:
        """What is outside of what the city would have taken is a fault."""
        reward = self._settings.reward
        low, high = 0.0 - (reward.largest or 0.0), reward.largest or float(reward.max_units)

        def outside(value: float) -> str:
            return f"{value:g} is outside [{low:g}, {high:g}], as [reward] bounds it"

        return columns.numbers_within(self._outcome, low, high, outside)


def _refuse_repeated(ids: Sequence[str | None], seen: SeenIds, columns: ChunkColumns) -> None:
    rows = [row for row, id_ in enumerate(ids) if id_ is not None]
    present = [id_ for id_ in ids if id_ is not None]
    repeated = seen.add(present, [columns.lines[row] for row in rows])
    for place, line in repeated.items():
        reason = f"{present[place]!r} is in line {line:,} already"
        columns.add_fault(rows[place], names.DECISION_ID, reason)


def _optional(values: Array) -> list[Any]:
    return [None if value != value else value for value in values.tolist()]


def _no_probability(value: float) -> str:
    return f"{value:g} is no probability: it must be above 0 and at most 1"


def _no_chance(value: float) -> str:
    return f"{value:g} is no chance: it must be at least 0 and at most 1"


def _no_version(value: float) -> str:
    return f"{value:g} is no version: it must be 1 or more, as an export writes it"
