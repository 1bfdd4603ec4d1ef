"""What waits for the next commit, in the order it came. Knows sizes and times of arrival, nothing else."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

Waiting = list[tuple[Any, Any]]  # a quote or a command, and the ticket of who asked


class WaitingLine:
    """`append` to both lists: a method for it would cost every price a call."""

    __slots__ = ("arrivals", "items")

    def __init__(self) -> None:
        self.items: Waiting = []
        self.arrivals: list[float] = []  # when each came, on the monotonic clock

    def take(self, max_rows: float) -> Waiting:
        """The first of them, at least `max_rows` rows if there are as many."""
        rows = 0
        for count, (item, _) in enumerate(self.items, 1):
            rows += item.size
            if rows >= max_rows:
                return self._take(count)
        return self.take_all()

    def take_all(self) -> Waiting:
        items = self.items
        self.items, self.arrivals = [], []
        return items

    def take_expired(self, arrived_by: float) -> Waiting:
        return self._take(bisect_right(self.arrivals, arrived_by))

    def _take(self, count: int) -> Waiting:
        items, self.items = self.items[:count], self.items[count:]
        self.arrivals = self.arrivals[count:]
        return items


def rows_of(items: Iterable[tuple[Any, Any]]) -> int:
    return sum([item.size for item, _ in items])
