"""An export: which decisions and columns, read page by page and encoded. Knows neither files nor HTTP.

Pages go up the numbers of decisions, and each page is a read of its own: a long export holds no snapshot of
the database open. It ends with the last decision that was there when it began.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pricemesh.city.settings import Settings
from pricemesh.errors import InvalidParameter
from pricemesh.history.rows import RowReader
from pricemesh.history.writing import Format, encoder
from pricemesh.store.reads import Reader
from pricemesh.store.startup import read_past

DEFAULT_PAGE_ROWS = 2_000


@dataclass(frozen=True)
class Selection:
    format: Format
    columns: Sequence[str] = ()  # names of columns or groups; without any, the default columns
    arm: int | None = None  # decisions at the price that this arm has now
    since: float | None = None  # Unix seconds
    until: float | None = None  # before this


class Progress(NamedTuple):
    rows: int  # that were exported
    done: int  # of the decisions that have to be looked at
    total: int


class Export:
    """`begin`, then `next` until it returns None. Both read the database: call them from one thread at a
    time."""

    def __init__(
        self,
        settings: Settings,
        reader: Reader,
        selection: Selection,
        page_rows: int = DEFAULT_PAGE_ROWS,
    ) -> None:
        arms = len(settings.arms.prices)
        if selection.arm is not None and not 0 <= selection.arm < arms:
            raise InvalidParameter(f"there is no arm {selection.arm}: the arms are 0 to {arms - 1}")
        self._rows = RowReader(settings)
        columns = self._rows.columns(self._rows.names.choose(selection.columns))
        self._encoder = encoder(selection.format, columns)
        self._reader = reader
        self._selection = selection
        self._price = None if selection.arm is None else settings.arms.prices[selection.arm]
        self._page_rows = page_rows
        self._first = self._last = self._reached = self._count = 0
        self._is_over = False

    @property
    def progress(self) -> Progress:
        before = self._first - 1 if self._first else 0
        return Progress(self._count, self._reached - before, self._last - before)

    def begin(self) -> None:
        self._rows.use(self._reader.read(read_past))
        self._first, self._last = self._reader.number_range(
            since=self._selection.since, until=self._selection.until
        )
        self._reached = max(0, self._first - 1)

    def next(self) -> bytes | None:
        """The file's next bytes, maybe none yet; None after its end."""
        if self._is_over:
            return None
        if self._reached >= self._last:
            self._is_over = True
            return self._encoder.end()
        chosen = self._selection
        page = self._reader.rows_after(
            self._reached,
            through=self._last,
            limit=self._page_rows,
            price=self._price,
            since=chosen.since,
            until=chosen.until,
        )
        self._reached = page.reached
        self._count += len(page.rows)
        return self._encoder.encode(self._rows.block(page.rows)) if page.rows else b""
