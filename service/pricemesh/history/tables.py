"""A CSV or Parquet file as chunks of rows in constant memory, under the names that a mapping gives.

Cells of CSV are text, None where empty; those of Parquet have their types. Knows no city.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pricemesh.core.arrays import Array
from pricemesh.errors import InvalidParameter
from pricemesh.history.extra import require_data
from pricemesh.history.lines import MAX_GROUP_CHARACTERS, Group, Records, delimiter_of, encoding_of, open_file
from pricemesh.history.mapping import ColumnMapping
from pricemesh.history.numbers import NumberColumn, numbers

CHUNK_ROWS = 2_000
MAX_COLUMNS = 10_000
PARQUET_MARK = b"PAR1"

Cell = Any  # text, a number, a time, or None


class RowFault(NamedTuple):
    line: int  # of the file, from 1; in Parquet the number of the row
    column: str  # "" where it is the whole line
    reason: str
    cells: Sequence[Cell]  # in the order of the file's own columns


class Chunk(Protocol):
    """Rows of a file. Columns are named by their places in it."""

    @property
    def lines(self) -> list[int]: ...

    @property
    def faults(self) -> list[RowFault]:
        """Lines that are no rows."""
        ...

    def row(self, row: int) -> Sequence[Cell]:
        """As in the file."""
        ...

    def cells(self, place: int) -> list[Cell]:
        """None where one is empty."""
        ...

    def numbers(self, place: int) -> NumberColumn: ...

    def moments(self, place: int) -> Array | None:
        """Unix seconds, NaN where a cell is empty; None where the column does not have times with a zone as
        its type."""
        ...


class RawTable(Protocol):
    names: list[str]  # of the file's own columns

    def chunks(self) -> Iterator[Chunk]: ...


class Table:
    """A file under mapped names."""

    def __init__(self, raw: RawTable, mapping: ColumnMapping) -> None:
        self._raw = raw
        self.file_names = raw.names
        self._sources = {source.name: source for source in mapping.resolve(self.file_names)}
        self.columns = list(self._sources)

    def chunks(self) -> Iterator[Chunk]:
        return self._raw.chunks()

    def cells(self, chunk: Chunk, name: str) -> list[Cell]:
        source = self._sources[name]
        return source.cells(chunk.cells(source.place))

    def numbers(self, chunk: Chunk, name: str) -> NumberColumn:
        source = self._sources[name]
        return chunk.numbers(source.place) if source.value is None else numbers(self.cells(chunk, name))

    def moments(self, chunk: Chunk, name: str) -> Array | None:
        source = self._sources[name]
        return chunk.moments(source.place) if source.value is None else None


def open_table(
    file: Path,
    mapping: ColumnMapping | None = None,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Table:
    with open_file(file) as stream:
        is_parquet = stream.read(4) == PARQUET_MARK
    raw = _open_parquet(file) if is_parquet else CsvTable(file, delimiter, encoding)
    _check_names(file, raw.names)
    return Table(raw, mapping or ColumnMapping())


class CsvTable:
    def __init__(self, file: Path, delimiter: str | None, encoding: str | None) -> None:
        self._file = file
        self._encoding = encoding_of(file, encoding)
        if delimiter is not None and len(delimiter) != 1:
            raise InvalidParameter(f"--delimiter must be one character, not {delimiter!r:.20}")
        self._delimiter = delimiter or delimiter_of(file, self._encoding)
        names, fault, line = self._head(self._records())
        if fault is not None:
            raise InvalidParameter(f"{file}, line {line}, which names the columns: {fault}")
        self.names = [name.strip() for name in names]

    def _records(self) -> Records:
        return Records(self._file, self._encoding, self._delimiter)

    def _head(self, records: Records) -> tuple[list[str], str | None, int]:
        """The first record, what is wrong with it, and its line."""
        while (group := records.take(1)) is not None:
            for line, cells, fault in group.faults:
                return cells, fault, line
            for line, cells in zip(group.lines, group.rows, strict=True):
                return cells, None, line
        raise InvalidParameter(f"{self._file} is empty: the first line must name the columns")

    def chunks(self) -> Iterator[Chunk]:
        records = self._records()
        self._head(records)
        chunk, characters = TextChunk(), 0
        while (group := records.take(CHUNK_ROWS - chunk.size)) is not None:
            chunk.add(group, len(self.names))
            characters += group.characters
            if chunk.size >= CHUNK_ROWS or characters >= MAX_GROUP_CHARACTERS:
                yield chunk
                chunk, characters = TextChunk(), 0
        if chunk.size:
            yield chunk


class TextChunk:
    def __init__(self) -> None:
        self.lines: list[int] = []
        self.faults: list[RowFault] = []
        self._rows: list[list[str]] = []

    @property
    def size(self) -> int:
        return len(self._rows) + len(self.faults)

    def add(self, group: Group, width: int) -> None:
        self.faults += [RowFault(line, "", fault, cells[:width]) for line, cells, fault in group.faults]
        if all(len(cells) == width for cells in group.rows):
            self.lines += group.lines
            self._rows += group.rows
            return
        for line, cells in zip(group.lines, group.rows, strict=True):
            if len(cells) == width:
                self.lines.append(line)
                self._rows.append(cells)
            else:
                fault = f"the line has {len(cells)} fields, and the first line names {width} columns"
                self.faults.append(RowFault(line, "", fault, cells[:width]))

    def row(self, row: int) -> Sequence[Cell]:
        return self._rows[row]

    def cells(self, place: int) -> list[Cell]:
        return [cells[place].strip() or None for cells in self._rows]

    def numbers(self, place: int) -> NumberColumn:
        return numbers(list(map(itemgetter(place), self._rows)))

    def moments(self, place: int) -> Array | None:  # noqa: ARG002
        return None


def _open_parquet(file: Path) -> RawTable:
    require_data()
    from pricemesh.history.parquet import ParquetTable

    return ParquetTable(file, CHUNK_ROWS)


def _check_names(file: Path, names: Sequence[str]) -> None:
    if len(names) > MAX_COLUMNS:
        raise InvalidParameter(f"{file} has {len(names):,} columns: more than {MAX_COLUMNS:,}")
    if "" in names:
        raise InvalidParameter(f"{file}: column {names.index('') + 1} has no name in the first line")
    seen: set[str] = set()
    for name in names:
        if "\0" in name:
            raise InvalidParameter(
                f"{file}: the name of column {names.index(name) + 1}, {name!r:.100}, has NUL bytes: name the "
                "file's --encoding, such as utf-16"
            )
        if name in seen:
            raise InvalidParameter(f"{file} has two columns {name!r:.100}: rename one")
        seen.add(name)
