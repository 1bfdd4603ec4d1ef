"""How many rows may wait for the database, so that no caller waits longer than `limits.max_wait_seconds`.

Arithmetic on what commits have cost lately; knows no database and no clock. An estimate that is too low does
no harm, because the loop answers callers that have waited too long. One that is too high would refuse callers
without need, so it leans to the low side.
"""

from math import inf

from pricemesh.errors import Overloaded

MEMORY = 0.8  # the weight of a group, against that of the next one
GROWTH_OF_FIXED_SECONDS = 0.01  # at each group, towards its cost
PRIOR_ROWS = 1000  # that cost nothing: a few rows that took long say little about many
MIN_SHARE_FOR_ROWS = 0.5  # of the time to wait, however long the smallest commit takes
NEARLY_FULL = 0.9


class Gate:
    """What traffic looks at before and while a body is read: the refusal that it would get afterwards, and
    how many bytes there are of bodies that have not arrived completely."""

    __slots__ = ("arriving_bytes", "max_arriving_bytes", "refusal")

    def __init__(self, max_arriving_bytes: float = inf) -> None:
        self.refusal: Overloaded | None = None
        self.arriving_bytes = 0
        self.max_arriving_bytes = max_arriving_bytes

    def add_arriving(self, count: int) -> Overloaded | None:
        """Count bytes of a body; the refusal where there are too many of all of them."""
        self.arriving_bytes += count
        if self.arriving_bytes <= self.max_arriving_bytes:
            return None
        return Overloaded("too many long bodies arrive at once: nothing was changed, try again", 1.0)


class WaitLimit:
    """A group of r rows takes about f + r·c seconds: f is the cost of the cheapest group of late, c what the
    others cost beyond it. A caller waits for the group under way and for its own."""

    def __init__(self, max_wait_seconds: float, max_rows: int, rows_per_commit: int) -> None:
        self.seconds = max_wait_seconds
        self.max_rows = max_rows
        self._most_rows = max_rows
        self._rows_per_commit = rows_per_commit
        self._fixed_seconds = max_wait_seconds  # until a group took less
        self._rows = 0.0  # of late
        self._row_seconds = 0.0  # that they took beyond the fixed cost

    def observe(self, rows: int, seconds: float) -> None:
        """What one group took, from the first look-up to the last answer."""
        seconds = min(seconds, self.seconds)  # one commit that hangs says nothing about the next
        self._fixed_seconds += GROWTH_OF_FIXED_SECONDS * (seconds - self._fixed_seconds)
        self._fixed_seconds = min(seconds, self._fixed_seconds)
        self._rows = MEMORY * self._rows + rows
        self._row_seconds = MEMORY * self._row_seconds + seconds - self._fixed_seconds
        left_seconds = max(self.seconds - 2 * self._fixed_seconds, MIN_SHARE_FOR_ROWS * self.seconds)
        self.max_rows = max(1, int(min(self._most_rows, left_seconds / self._cost_of_row)))

    @property
    def _cost_of_row(self) -> float:
        """In seconds, with its part of a full commit's fixed cost; never 0."""
        cost = self._row_seconds / (self._rows + PRIOR_ROWS) + self._fixed_seconds / self._rows_per_commit
        return max(1e-9, cost)

    def too_many_rows(self, waiting_rows: int) -> Overloaded:
        seconds = waiting_rows * self._cost_of_row + self._fixed_seconds
        return Overloaded(
            f"too many writes wait for the database ({waiting_rows} rows): nothing was changed, try again",
            seconds,
        )

    def is_nearly_full(self, waiting_rows: int) -> bool:
        """Whether hardly any request would be admitted now."""
        return waiting_rows >= NEARLY_FULL * self.max_rows

    def no_answer(self, busy_seconds: float) -> Overloaded:
        return Overloaded(
            f"the database has not answered for {busy_seconds:.1f} s: nothing was changed, try again",
            self.seconds,
        )

    def behind(self) -> Overloaded:
        return Overloaded(
            "this replica has yet to read what the others wrote: nothing was changed, try again", 1.0
        )

    def waited_too_long(self) -> Overloaded:
        return Overloaded(
            f"waited {self.seconds:g} s for the database (limits.max_wait_seconds): nothing was changed, try "
            "again",
            self.seconds,
        )
