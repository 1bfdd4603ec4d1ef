"""A CSV or Parquet file as chunks of raw rows in constant memory, under the names that a mapping gives.

Cells of CSV are text, None where empty; those of Parquet have their types. Knows no city.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pricemesh.errors import InvalidParameter
from pricemesh.history.extra import require_data
from pricemesh.history.lines import Records, delimiter_of, encoding_of, open_file
from pricemesh.history.mapping import ColumnMapping

CHUNK_ROWS = 2_000
CHUNK_CHARACTERS = 1 << 22
MAX_COLUMNS = 10_000
PARQUET_MARK = b"PAR1"

Cell = Any  # text, a number, a time, or None


class RowFault(NamedTuple):
    line: int  # of the file, from 1; in Parquet the number of the row
    column: str  # "" where it is the whole line
    reason: str
    cells: Sequence[Cell]  # in the order of the file's own columns


class Chunk(NamedTuple):
    lines: list[int]
    rows: list[Sequence[Cell]]  # as in the file
    faults: list[RowFault]


class RawTable(Protocol):
    names: list[str]  # of the file's own columns

    def chunks(self) -> Iterator[Chunk]: ...


class Table:
    """A file under mapped names. `columns` are those of every chunk."""

    def __init__(self, raw: RawTable, mapping: ColumnMapping) -> None:
        self._raw = raw
        self.file_names = raw.names
        self._sources = mapping.resolve(self.file_names)
        self.columns = [source.name for source in self._sources]

    def chunks(self) -> Iterator[Chunk]:
        return self._raw.chunks()

    def cells(self, chunk: Chunk) -> dict[str, list[Cell]]:
        """The chunk's cells by column."""
        by_place = list(zip(*chunk.rows, strict=True)) if chunk.rows else [()] * len(self.file_names)
        return {source.name: source.cells(by_place[source.place]) for source in self._sources}


def open_table(
    file: Path,
    mapping: ColumnMapping | None = None,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Table:
    with open_file(file) as stream:
        is_parquet = stream.read(4) == PARQUET_MARK
    raw: RawTable = ParquetTable(file) if is_parquet else CsvTable(file, delimiter, encoding)
    return Table(raw, mapping or ColumnMapping())


class CsvTable:
    def __init__(self, file: Path, delimiter: str | None, encoding: str | None) -> None:
        self._file = file
        self._encoding = encoding_of(file, encoding)
        if delimiter is not None and len(delimiter) != 1:
            raise InvalidParameter(f"--delimiter must be one character, not {delimiter!r:.20}")
        self._delimiter = delimiter or delimiter_of(file, self._encoding)
        head = next(iter(self._records()), None)
        if head is None:
            raise InvalidParameter(f"{file} is empty: the first line must name the columns")
        if head.fault is not None:
            raise InvalidParameter(f"{file}, line {head.line}, which names the columns: {head.fault}")
        self.names = [name.strip() for name in head.cells]
        _check_names(file, self.names)

    def _records(self) -> Records:
        return Records(self._file, self._encoding, self._delimiter)

    def chunks(self) -> Iterator[Chunk]:
        records = iter(self._records())
        next(records)
        chunk, size, width = Chunk([], [], []), 0, len(self.names)
        for line, cells, fault in records:
            if fault is None and len(cells) != width:
                fault = f"the line has {len(cells)} fields, and the first line names {width} columns"
            if fault is not None:
                chunk.faults.append(RowFault(line, "", fault, cells[:width]))
            else:
                chunk.lines.append(line)
                chunk.rows.append([cell.strip() or None for cell in cells])
            size += sum(map(len, cells))
            if len(chunk.rows) + len(chunk.faults) >= CHUNK_ROWS or size >= CHUNK_CHARACTERS:
                yield chunk
                chunk, size = Chunk([], [], []), 0
        if chunk.rows or chunk.faults:
            yield chunk


class ParquetTable:
    def __init__(self, file: Path) -> None:
        require_data()
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._arrow = pa
        try:
            self._parquet = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
        except (pa.ArrowException, OSError) as fault:
            reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
            raise InvalidParameter(f"{file} is not a Parquet file that can be read: {reason}") from None
        self.names = list(self._parquet.schema_arrow.names)
        self._file = file
        _check_names(file, self.names)

    def chunks(self) -> Iterator[Chunk]:
        line = 1
        try:
            for batch in self._parquet.iter_batches(batch_size=CHUNK_ROWS):
                columns = [self._values(column) for column in batch.columns]
                rows: list[Sequence[Cell]] = list(zip(*columns, strict=True))
                yield Chunk(list(range(line, line + len(rows))), rows, [])
                line += len(rows)
        except (self._arrow.ArrowException, OSError) as fault:
            reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
            raise InvalidParameter(f"{self._file} is damaged after row {line - 1:,}: {reason}") from None

    def _values(self, column: Any) -> list[Any]:
        pa = self._arrow
        if pa.types.is_timestamp(column.type):  # Python's times have no nanoseconds
            column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        values: list[Any] = column.to_pylist()
        return values


def _check_names(file: Path, names: Sequence[str]) -> None:
    if len(names) > MAX_COLUMNS:
        raise InvalidParameter(f"{file} has {len(names):,} columns: more than {MAX_COLUMNS:,}")
    if "" in names:
        raise InvalidParameter(f"{file}: column {names.index('') + 1} has no name in the first line")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidParameter(f"{file} has two columns {name!r:.100}: rename one")
        seen.add(name)
