"""The rows of a file as what a city would have decided and heard: checked, typed, chunk by chunk.

Knows a city's configuration and no database. A row is either in a batch, or has faults: where, and why.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, tzinfo
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pricemesh.city.settings import Settings
from pricemesh.core.arrays import Array, Ints
from pricemesh.core.decision import IDENTIFIER, IDENTIFIER_RULE, NO_ARM, SUBJECT
from pricemesh.errors import InvalidParameter
from pricemesh.history import columns as names
from pricemesh.history.numbers import number, numbers
from pricemesh.history.seen_ids import SeenIds
from pricemesh.history.summary import Summary
from pricemesh.history.tables import Cell, Chunk, RowFault, Table
from pricemesh.history.times import file_time, number_time, zoned_seconds

PRICE_TOLERANCE = 1e-9  # relative: files round
MAX_FAULTS_OF_A_ROW = 5
SHOWN_PRICES = 20
_identifier = re.compile(IDENTIFIER).fullmatch
_subject = re.compile(SUBJECT).fullmatch
OPTIONAL = (names.TIME, names.DECISION_ID, names.PROPENSITY, names.SUBJECT)


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
                batch = self._batch(chunk, seen)
                rows = len(chunk.faults) + len(chunk.rows)
                self.summary.add_batch(batch.times, batch.amounts, batch.faults, rows)
                yield batch
        finally:
            seen.close()

    def _batch(self, chunk: Chunk, seen: SeenIds) -> Batch:
        cells = self._table.cells(chunk)
        work = _Work(chunk.lines, defaultdict(list))
        contexts = np.empty((len(chunk.rows), len(self._features)))
        for place, name in enumerate(self._features):
            contexts[:, place] = self._feature(name, cells[name], work)
        prices, arms = self._arms(cells[names.PRICE], work)
        amounts = self._amounts(cells[self._outcome], work)
        empty: list[Cell] = [None] * len(chunk.rows)
        times = _each(names.TIME, cells.get(names.TIME, empty), self._time, work)
        propensities = _each(names.PROPENSITY, cells.get(names.PROPENSITY, empty), _propensity, work)
        subjects = _each(names.SUBJECT, cells.get(names.SUBJECT, empty), _subject_of, work)
        ids = _each(names.DECISION_ID, cells.get(names.DECISION_ID, empty), _id_of, work)
        self._refuse_repeated(ids, seen, work)
        good = [row for row in range(len(chunk.rows)) if row not in work.faults]
        return Batch(
            [chunk.lines[row] for row in good],
            [ids[row] for row in good],
            [times[row] for row in good],
            [subjects[row] for row in good],
            contexts[good],
            prices[good],
            arms[good],
            [amounts[row] for row in good],
            [propensities[row] for row in good],
            sorted([*chunk.faults, *work.row_faults(chunk)], key=lambda fault: fault.line),
        )

    def _feature(self, name: str, cells: Sequence[Cell], work: "_Work") -> Array:
        feature, column = self._features[name], numbers(cells)
        work.add_all(name, column.reasons)
        values = column.values
        outside = (values < feature.min) | (values > feature.max)
        for row in np.flatnonzero(outside).tolist():
            work.add(row, name, f"{values[row]:g} is outside [{feature.min:g}, {feature.max:g}]")
        self.summary.add_feature(name, values, int(outside.sum()))
        return values

    def _arms(self, cells: Sequence[Cell], work: "_Work") -> tuple[Array, Ints]:
        """Prices and arms; NO_ARM at another price, from which the policy learns nevertheless."""
        column = numbers(cells)
        work.add_all(names.PRICE, column.reasons)
        prices = np.nan_to_num(column.values)
        arms: Ints = np.abs(prices[:, None] - self._prices).argmin(axis=1)
        distances = np.abs(prices - self._prices[arms])
        is_known = np.isfinite(column.values)
        is_arm = is_known & (distances <= PRICE_TOLERANCE * np.maximum(1.0, np.abs(prices)))
        for row in np.flatnonzero(is_known & ~is_arm).tolist():
            price = float(prices[row])
            arms[row] = NO_ARM
            is_learned = self._reads_price(price)
            if not is_learned:
                work.add(row, names.PRICE, f"{price:g} is no arm's price; {self._ladder_text}")
            self.summary.add_other_price(price, is_learned=is_learned)
        self.summary.add_arms(arms[is_arm])
        return np.where(is_arm, self._prices[arms], prices), arms

    @cached_property
    def _ladder_text(self) -> str:
        ladder = ", ".join(f"{price:g}" for price in self._prices[:SHOWN_PRICES])
        return f"there are {ladder}" + (", ..." if len(self._prices) > SHOWN_PRICES else "")

    def _amounts(self, cells: Sequence[Cell], work: "_Work") -> list[float | None]:
        """What is outside of what the city would have taken is a fault."""
        reward = self._settings.reward
        low, high = 0.0 - (reward.largest or 0.0), reward.largest or float(reward.max_units)

        def read(cell: Cell) -> float:
            value = number(cell)
            if not low <= value <= high:
                raise ValueError(f"{value:g} is outside [{low:g}, {high:g}], as [reward] bounds it")
            return value

        return _each(self._outcome, cells, read, work)

    def _time(self, cell: Cell) -> float:
        if isinstance(cell, datetime):
            seconds = zoned_seconds(cell, self._zone)
        elif isinstance(cell, date):
            seconds = zoned_seconds(datetime.combine(cell, time()), self._zone)
        elif isinstance(cell, int | float):
            seconds = number_time(float(cell))
        else:
            seconds = file_time(str(cell), self._zone)
        if self._latest is not None and seconds > self._latest:
            raise ValueError(f"{cell} is in the future")
        return seconds

    def _refuse_repeated(self, ids: Sequence[str | None], seen: SeenIds, work: "_Work") -> None:
        rows = [row for row, id_ in enumerate(ids) if id_ is not None]
        present = [id_ for id_ in ids if id_ is not None]
        repeated = seen.add(present, [work.lines[row] for row in rows])
        for place, line in repeated.items():
            work.add(rows[place], names.DECISION_ID, f"{present[place]!r} is in line {line:,} already")


class _Work(NamedTuple):
    """The faults of a chunk's rows so far."""

    lines: list[int]
    faults: defaultdict[int, list[tuple[str, str]]]  # by row: (column, reason)

    def add(self, row: int, column: str, reason: str) -> None:
        if len(self.faults[row]) < MAX_FAULTS_OF_A_ROW:
            self.faults[row].append((column, reason))

    def add_all(self, column: str, reasons: dict[int, str]) -> None:
        for row, reason in reasons.items():
            self.add(row, column, reason)

    def row_faults(self, chunk: Chunk) -> Iterator[RowFault]:
        for row, faults in self.faults.items():
            for column, reason in faults:
                yield RowFault(chunk.lines[row], column, reason, chunk.rows[row])


def _each(column: str, cells: Sequence[Cell], read: Callable[[Cell], Any], work: _Work) -> list[Any]:
    """What `read` makes of each cell; None where it is empty or has a fault."""
    values: list[Any] = []
    for row, cell in enumerate(cells):
        value = None
        if cell is not None:
            try:
                value = read(cell)
            except (ValueError, OverflowError) as fault:
                work.add(row, column, str(fault))
        values.append(value)
    return values


def _propensity(cell: Cell) -> float:
    value = number(cell)
    if not 0.0 < value <= 1.0:
        raise ValueError(f"{value:g} is no probability: it must be above 0 and at most 1")
    return value


def _id_of(cell: Cell) -> str:
    text = str(cell)
    if not _identifier(text):
        raise ValueError(f"must be {IDENTIFIER_RULE}, not {text[:60]!r}")
    return text


def _subject_of(cell: Cell) -> str:
    text = str(cell)
    if not _subject(text):
        raise ValueError("must be 1 to 200 characters without control characters")
    return text
