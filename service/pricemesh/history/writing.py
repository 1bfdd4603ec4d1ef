"""Blocks of rows as the bytes of a CSV or a Parquet file, piece by piece. Knows no database and no disk."""

import csv
import io
from collections.abc import Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, Protocol

import numpy as np

from pricemesh.history.extra import require_data
from pricemesh.history.rows import Block, Column, Kind, Values
from pricemesh.history.times import MAX_TIME, MIN_TIME

ROWS_PER_CALL = 200  # of CSV: one call holds the interpreter, and a city's prices wait meanwhile
ROW_GROUP_ROWS = 20_000  # of Parquet


class Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"


MEDIA_TYPES = {Format.CSV: "text/csv; charset=utf-8", Format.PARQUET: "application/vnd.apache.parquet"}


class Encoder(Protocol):
    def encode(self, block: Block) -> bytes:
        """What the file has next: the first call also returns its beginning."""
        ...

    def end(self) -> bytes: ...


def encoder(format_: Format, columns: Sequence[Column]) -> Encoder:
    """MissingExtra where the format needs a package that is not installed."""
    return CsvEncoder(columns) if format_ is Format.CSV else ParquetEncoder(columns)


class CsvEncoder:
    """UTF-8, commas, a line of names first. Nothing is an empty field, a time is ISO 8601 in UTC."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, lineterminator="\n")
        self._writer.writerow([column.name for column in columns])

    def encode(self, block: Block) -> bytes:
        rows = zip(*(_csv_values(column, block) for column in self._columns), strict=True)
        while several := list(islice(rows, ROWS_PER_CALL)):
            self._writer.writerows(several)
        return self.end()

    def end(self) -> bytes:
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return text.encode()


def _csv_values(column: Column, block: Block) -> Sequence[Any]:
    values = column.values(block)
    if column.kind is Kind.TIME:
        texts = np.datetime_as_string(_moments(values), unit="us", timezone="UTC").tolist()
        return ["" if text == "NaT" else text for text in texts]
    if column.kind is Kind.FLAG:
        return [None if value is None else "true" if value else "false" for value in values]
    if not isinstance(values, np.ndarray):
        return values
    numbers: list[Any] = values.tolist()
    return [None if value != value else value for value in numbers] if np.isnan(values).any() else numbers


def _moments(seconds: Values) -> "np.ndarray[Any, np.dtype[np.datetime64]]":
    """Microseconds; NaT where there is nothing. A time outside the years 1 to 9999, of a wrong clock, is the
    nearest one within them, because other programs refuse files with such times."""
    numbers = np.array([np.nan if each is None else each for each in seconds], dtype=np.float64)
    missing = np.isnan(numbers)
    known = np.clip(np.where(missing, 0.0, numbers), MIN_TIME, MAX_TIME)
    moments = np.round(1e6 * known).astype("datetime64[us]")
    moments[missing] = np.datetime64("NaT")
    return moments


class ParquetEncoder:
    """Compressed by zstd, in groups of ROW_GROUP_ROWS."""

    def __init__(self, columns: Sequence[Column]) -> None:
        require_data()
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._arrow = pa
        self._columns = columns
        types = {
            Kind.TEXT: pa.string(),
            Kind.NUMBER: pa.float64(),
            Kind.WHOLE: pa.int64(),
            Kind.TIME: pa.timestamp("us", tz="UTC"),
            Kind.FLAG: pa.bool_(),
        }
        self._schema = pa.schema([(column.name, types[column.kind]) for column in columns])
        self._pieces = _Pieces()
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._pieces, mode="w"), self._schema, compression="zstd"
        )
        self._batches: list[Any] = []
        self._rows = 0

    def encode(self, block: Block) -> bytes:
        arrays = [
            self._array(column, field.type, block)
            for column, field in zip(self._columns, self._schema, strict=True)
        ]
        self._batches.append(self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._rows += block.size
        if self._rows >= ROW_GROUP_ROWS:
            self._write_group()
        return self._pieces.take()

    def _array(self, column: Column, type_: Any, block: Block) -> Any:
        values = column.values(block)
        if column.kind is Kind.TIME:
            return self._arrow.array(_moments(values)).cast(type_)
        if column.kind is Kind.FLAG:
            values = [None if value is None else bool(value) for value in values]
        return self._arrow.array(values, type=type_, from_pandas=True)  # NaN is nothing

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_batches(self._batches, schema=self._schema))
        self._batches.clear()
        self._rows = 0

    def end(self) -> bytes:
        self._write_group()
        self._writer.close()
        return self._pieces.take()


class _Pieces:
    """A file to write to, whose content is taken away piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def write(self, piece: Any) -> int:
        data = bytes(piece)
        self._pieces.append(data)
        self._length += len(data)
        return len(data)

    def tell(self) -> int:
        return self._length

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def take(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data
