"""What waits for the next commit, in the order it came. Knows sizes, and about when things came."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from pricemesh.store.commands import SaveFeedback

Waiting = list[tuple[Any, Any]]  # a quote or a command, and the ticket of who asked


class Group(NamedTuple):
    """What goes into one commit."""

    quotes: Waiting
    commands: Waiting


NO_GROUP = Group([], [])


def split_traffic(group: Group) -> tuple[Waiting, Group]:
    """Prices and feedback, and the rest of a group."""
    feedback = [item for item in group.commands if isinstance(item[0], SaveFeedback)]
    rest = [item for item in group.commands if not isinstance(item[0], SaveFeedback)]
    return group.quotes + feedback, Group([], rest)


class WaitingLine:
    """Append to `items`. A clock is read now and then, for a `mark`, and not for every arrival."""

    __slots__ = ("_marks", "items")

    def __init__(self) -> None:
        self.items: Waiting = []
        self._marks: list[tuple[float, int]] = []  # a time, and how many of `items` had come by then

    def mark(self, now: float) -> None:
        if self.items:
            self._marks.append((now, len(self.items)))

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
        self.items = []
        self._marks.clear()
        return items

    def take_marked(self, marked_by: float) -> Waiting:
        """Those that a mark of that time, or an earlier one, has seen."""
        return self._take(max([count for time, count in self._marks if time <= marked_by], default=0))

    def _take(self, count: int) -> Waiting:
        items, self.items = self.items[:count], self.items[count:]
        self._marks = [(time, seen - count) for time, seen in self._marks if seen > count]
        return items


def rows_of(items: Iterable[tuple[Any, Any]]) -> int:
    return sum([item.size for item, _ in items])
