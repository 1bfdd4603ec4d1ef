"""What the columns of a file hold: counts, ranges, values. In constant memory; knows no configuration."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from pricemesh.history.numbers import numbers
from pricemesh.history.tables import Table
from pricemesh.history.times import file_time

MAX_SURVEYED_ROWS = 1_000_000
MAX_DISTINCT = 1_000  # values that are counted of a column; with more there are "many"
MAX_DISTINCT_PRICES = 20_000
DATES_SAMPLED = 200


class ColumnSurvey:
    def __init__(self, max_distinct: int = MAX_DISTINCT) -> None:
        self.rows = self.empty = self.numeric = 0
        self.low, self.high = float("inf"), float("-inf")
        self.is_whole = True
        self.values: Counter[Any] = Counter()  # numbers, or text where it is no number
        self.has_many = False  # more distinct values than are counted
        self._max_distinct = max_distinct
        self._dates = self._date_samples = 0

    def add(self, cells: Sequence[Any]) -> None:
        self.rows += len(cells)
        filled = [cell for cell in cells if cell is not None]
        self.empty += len(cells) - len(filled)
        read = numbers(filled)
        values = read.values[np.isfinite(read.values)].tolist()
        self.numeric += len(values)
        if values:
            self.low, self.high = min(self.low, *values), max(self.high, *values)
            self.is_whole = self.is_whole and all(value.is_integer() for value in values)
        texts = [filled[row] for row in read.reasons]
        self._sample_dates(texts)
        if not self.has_many:
            self.values.update(values)
            self.values.update(map(str, texts))
            self.has_many = len(self.values) > self._max_distinct

    def _sample_dates(self, cells: Sequence[Any]) -> None:
        for cell in cells[: max(0, DATES_SAMPLED - self._date_samples)]:
            self._date_samples += 1
            if isinstance(cell, datetime):
                self._dates += 1
                continue
            try:
                file_time(str(cell))
            except ValueError:
                continue
            self._dates += 1

    @property
    def filled(self) -> int:
        return self.rows - self.empty

    @property
    def is_numeric(self) -> bool:
        return self.filled > 0 and self.numeric == self.filled

    @property
    def is_time(self) -> bool:
        return self._date_samples > 0 and self._dates == self._date_samples and self.numeric == 0

    @property
    def is_constant(self) -> bool:
        return len(self.values) == 1 and not self.has_many

    @property
    def is_identifier(self) -> bool:
        """Whole numbers or text of which hardly any comes twice."""
        is_distinct = self.has_many or len(self.values) > 0.9 * self.filled
        if not is_distinct or self.filled < 20:
            return False
        span = self.high - self.low + 1
        return not self.is_numeric or (self.is_whole and (span >= self.filled > 0.5 * span))


class Survey:
    def __init__(self, columns: Sequence[str], price: str) -> None:
        self.columns = {
            name: ColumnSurvey(MAX_DISTINCT_PRICES if name == price else MAX_DISTINCT) for name in columns
        }
        self.rows = 0
        self.faults = 0
        self.is_whole_file = True


def survey(table: Table, price: str) -> Survey:
    """Of the first MAX_SURVEYED_ROWS rows."""
    result = Survey(table.columns, price)
    for chunk in table.chunks():
        if result.rows >= MAX_SURVEYED_ROWS:
            result.is_whole_file = False
            break
        for name, column in result.columns.items():
            column.add(table.cells(chunk, name))
        result.rows += len(chunk.lines)
        result.faults += len(chunk.faults)
    return result
