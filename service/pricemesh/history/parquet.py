"""A Parquet file as chunks of rows. Needs the extra `data`."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pricemesh.core.arrays import Array
from pricemesh.errors import InvalidParameter
from pricemesh.history.numbers import NumberColumn, numbers

MICROSECONDS = 1e6
_FAULTS = (pa.ArrowException, OSError)


class ParquetTable:
    def __init__(self, file: Path, chunk_rows: int) -> None:
        self._file, self._chunk_rows = file, chunk_rows
        try:
            self._parquet = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
        except _FAULTS as fault:
            raise InvalidParameter(
                f"{file} is not a Parquet file that can be read: {_reason(fault)}"
            ) from None
        self.names: list[str] = list(self._parquet.schema_arrow.names)

    def chunks(self) -> Iterator["ParquetChunk"]:
        line = 1
        try:
            for batch in self._parquet.iter_batches(batch_size=self._chunk_rows):
                yield ParquetChunk(batch, line)
                line += batch.num_rows
        except _FAULTS as fault:
            raise InvalidParameter(
                f"{self._file} is damaged after row {line - 1:,}: {_reason(fault)}"
            ) from None


class ParquetChunk:
    def __init__(self, batch: Any, first: int) -> None:
        self._batch = batch
        self.lines = list(range(first, first + batch.num_rows))
        self.faults: list[Any] = []

    @cached_property
    def _columns(self) -> list[list[Any]]:
        return [self.cells(place) for place in range(self._batch.num_columns)]

    def row(self, row: int) -> Sequence[Any]:
        return [cells[row] for cells in self._columns]

    def cells(self, place: int) -> list[Any]:
        column = self._batch.column(place)
        if pa.types.is_timestamp(column.type):  # Python's times have no nanoseconds
            column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        values: list[Any] = column.to_pylist()
        return values

    def numbers(self, place: int) -> NumberColumn:
        column = self._batch.column(place)
        type_ = column.type
        if pa.types.is_floating(type_) or pa.types.is_integer(type_):
            values = _floats(column)
            empty = np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False)).tolist()
            if np.count_nonzero(np.isfinite(values)) == len(values) - len(empty):
                return NumberColumn(values, {}, empty)
        return numbers(self.cells(place))

    def moments(self, place: int) -> Array | None:
        column = self._batch.column(place)
        if not pa.types.is_timestamp(column.type) or column.type.tz is None:
            return None
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        return _floats(column.cast(pa.int64())) / MICROSECONDS


def _floats(column: Any) -> Array:
    """NaN where there is nothing."""
    filled = column.cast(pa.float64(), safe=False).fill_null(np.nan)
    return np.array(filled.to_numpy(zero_copy_only=False))


def _reason(fault: Exception) -> str:
    return str(fault).splitlines()[0] if str(fault) else type(fault).__name__
