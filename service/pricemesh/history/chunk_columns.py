"""The columns of one chunk that any city has, as values, with the faults of its rows."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, tzinfo
from typing import Any

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.decision import IDENTIFIER, IDENTIFIER_RULE, SUBJECT
from pricemesh.history.numbers import EMPTY
from pricemesh.history.tables import Cell, Chunk, RowFault, Table
from pricemesh.history.times import file_time, iso_times, number_time, zoned_seconds

MAX_FAULTS_OF_A_ROW = 5
FLAGS = {"true": True, "false": False, "1": True, "0": False}
_identifier = re.compile(IDENTIFIER).fullmatch
_subject = re.compile(SUBJECT).fullmatch


class ChunkColumns:
    """A column that the file does not have is one of empty cells."""

    def __init__(self, table: Table, chunk: Chunk, zone: tzinfo, latest: float | None) -> None:
        self._table, self._chunk = table, chunk
        self._zone, self._latest = zone, latest
        self.lines = chunk.lines
        self.size = len(chunk.lines)
        self._faults: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)  # (column, reason) by row

    # Faults

    def add_fault(self, row: int, column: str, reason: str) -> None:
        if len(self._faults[row]) < MAX_FAULTS_OF_A_ROW:
            self._faults[row].append((column, reason))

    @property
    def good_rows(self) -> list[int]:
        return [row for row in range(self.size) if row not in self._faults]

    def faults(self) -> list[RowFault]:
        """Those of whole lines, too, in the order of the file."""
        return sorted([*self._chunk.faults, *self._row_faults()], key=lambda fault: fault.line)

    def _row_faults(self) -> Iterator[RowFault]:
        for row, faults in self._faults.items():
            for column, reason in faults:
                yield RowFault(self.lines[row], column, reason, self._chunk.row(row))

    # Columns

    def numbers(self, name: str, *, is_optional: bool = False) -> Array:
        """(m,); NaN where a cell is empty or no number."""
        if name not in self._table.columns:
            return np.full(self.size, np.nan)
        column = self._table.numbers(self._chunk, name)
        for row, reason in column.reasons.items():
            self.add_fault(row, name, reason)
        for row in () if is_optional else column.empty:
            self.add_fault(row, name, EMPTY)
        return column.values

    def numbers_within(self, name: str, low: float, high: float, reason: Callable[[float], str]) -> Array:
        """As `numbers`, of an optional column whose values have bounds."""
        values = self.numbers(name, is_optional=True)
        for row in np.flatnonzero((values < low) | (values > high)).tolist():
            self.add_fault(row, name, reason(float(values[row])))
        return values

    def times(self, name: str) -> Array:
        """Unix seconds (m,); NaN where a cell is empty or has a fault."""
        if name not in self._table.columns:
            return np.full(self.size, np.nan)
        moments = self._table.moments(self._chunk, name)
        if moments is not None and not self._is_late(moments):
            return moments
        cells = self._table.cells(self._chunk, name)
        moments = iso_times(cells)
        if moments is not None and not self._is_late(moments):
            return moments
        return np.array(self._each(name, cells, self._time), dtype=np.float64)  # None becomes NaN

    def _is_late(self, moments: Array) -> bool:
        return self._latest is not None and bool((moments > self._latest).any())

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

    def identifiers(self, name: str) -> list[str | None]:
        return self._texts(name, _identifier, _id_of)

    def subjects(self, name: str) -> list[str | None]:
        return self._texts(name, _subject, _subject_of)

    def _texts(self, name: str, match: Callable[[str], Any], read: Callable[[Cell], str]) -> list[str | None]:
        if name not in self._table.columns:
            return [None] * self.size
        cells = self._table.cells(self._chunk, name)
        try:
            if all(map(match, cells)):
                return cells
        except TypeError:  # numbers, or empty cells
            pass
        return self._each(name, cells, read)

    def flags(self, name: str) -> list[int]:
        """The rows where it is true."""
        if name not in self._table.columns:
            return []
        values = self._each(name, self._table.cells(self._chunk, name), _flag_of)
        return [row for row, value in enumerate(values) if value]

    def _each(self, name: str, cells: Sequence[Cell], read: Callable[[Cell], Any]) -> list[Any]:
        """What `read` makes of each cell; None where it is empty or has a fault."""
        values: list[Any] = []
        for row, cell in enumerate(cells):
            value = None
            if cell is not None:
                try:
                    value = read(cell)
                except (ValueError, OverflowError) as fault:
                    self.add_fault(row, name, str(fault))
            values.append(value)
        return values


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


def _flag_of(cell: Cell) -> bool:
    try:
        return FLAGS[str(cell).lower()]
    except KeyError:
        raise ValueError(f"must be true or false, not {str(cell)[:60]!r}") from None
