"""What commits did, for those who learn and answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pricemesh.core.decision import Decision
from pricemesh.errors import StorageUnavailable
from pricemesh.store.commands import Lesson, Position, Unanswered
from pricemesh.store.present_state import PresentState


class Missed(NamedTuple):
    """What commits did that failed and happened nevertheless."""

    decisions: list[Decision]
    lessons: list[Lesson]
    released: list[Unanswered]
    position: Position


class CommitResult(NamedTuple):
    results: list[Any]  # one per command; an exception where the database refused that command alone
    lessons: list[Lesson]  # to be learned, in the order of their versions
    decisions: list[Decision]  # those that are new
    faults: Sequence[StorageUnavailable] = ()  # those among the results
    released: Sequence[Unanswered] = ()  # decisions that waited for feedback and will not be learned
    position: Position = Position()  # of the rows, after this commit
    version: int = 0  # of the learner, once it has learned the lessons
    recovered: PresentState | None = None  # before this commit, where the answer of an earlier one was lost

    def after(self, missed: Sequence[Missed]) -> "CommitResult":
        """The same with what was missed before it."""
        if not missed:
            return self
        return self._replace(
            lessons=[*(lesson for each in missed for lesson in each.lessons), *self.lessons],
            decisions=[*(row for each in missed for row in each.decisions), *self.decisions],
            released=[*(row for each in missed for row in each.released), *self.released],
        )
