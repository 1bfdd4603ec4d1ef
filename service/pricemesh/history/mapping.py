"""`--map`: which column of a file is taken under which name.

`COLUMN=NAME` renames. `COLUMN:VALUE=NAME` makes a number of a column: 1 where it has the value, 0 elsewhere,
so that `CHOICE:2=sold` is a sale wherever CHOICE is 2, and `weekday:sunday=sunday` a feature.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pricemesh.errors import InvalidParameter


class Source(NamedTuple):
    """Where the cells of a column come from."""

    name: str
    place: int  # in the file
    value: str | None = None  # the cell is 1 where the file has this, 0 elsewhere

    def cells(self, cells: Sequence[Any]) -> list[Any]:
        if self.value is None:
            return list(cells)
        return [None if cell is None else float(_has(cell, self.value)) for cell in cells]


@dataclass(frozen=True)
class ColumnMapping:
    pairs: Sequence[tuple[str, str]] = ()  # (COLUMN or COLUMN:VALUE, NAME)

    @classmethod
    def parsed(cls, options: Sequence[str]) -> "ColumnMapping":
        pairs = []
        for option in options:
            column, separator, name = option.rpartition("=")
            if not separator or not column or not name:
                raise InvalidParameter(
                    f"--map is COLUMN=NAME, such as SM_CO=price, or COLUMN:VALUE=NAME, not {option!r:.100}"
                )
            pairs.append((column, name))
        return cls(pairs)

    def resolve(self, names: Sequence[str]) -> list[Source]:
        """The columns of a file with these names, mapped ones first under their new names. A column that is
        mapped has no other name: what `sold` is made of must not be a feature, too."""
        sources = [self._source(column, name, names) for column, name in self.pairs]
        places = {source.place for source in sources}
        mapped = [source.name for source in sources]
        sources += [
            Source(name, place)
            for place, name in enumerate(names)
            if place not in places and name not in mapped
        ]
        doubles = sorted({name for name in mapped if mapped.count(name) > 1})
        if doubles:
            raise InvalidParameter(f"--map gives two columns the name {doubles[0]!r:.100}")
        return sources

    def _source(self, column: str, name: str, names: Sequence[str]) -> Source:
        if column in names:
            return Source(name, names.index(column))
        before, _, value = column.partition(":")
        while before not in names and ":" in value:  # a column's own name may have a colon
            more, _, value = value.partition(":")
            before = f"{before}:{more}"
        if before not in names or ":" not in column:
            raise InvalidParameter(
                f"--map names the column {column!r:.100}, which the file does not have: it has "
                f"{', '.join(names[:50])}"
            )
        return Source(name, names.index(before), value)


def _has(cell: Any, value: str) -> bool:
    """Also where one of them writes a number in another way: 2, 2.0."""
    text = str(cell)
    if text == value:
        return True
    try:
        return float(text) == float(value)
    except ValueError:
        return False
