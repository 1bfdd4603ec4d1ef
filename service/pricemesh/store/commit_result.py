"""What commits did, for those who learn and answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pricemesh.core.decision import Decision
from pricemesh.errors import StorageUnavailable
from pricemesh.store.commands import Lesson, Position, Unanswered
from pricemesh.store.present_state import PresentState


class Missed(NamedTuple):
    """What commits did that failed and happened nevertheless, or that other replicas did."""

    decisions: list[Decision]
    lessons: list[Lesson]
    released: list[Unanswered]
    position: Position
    begun: Sequence[Unanswered] = ()  # decisions of other replicas that wait for feedback


class CommitResult(NamedTuple):
    results: list[Any]  # one per command; an exception where the database refused that command alone
    lessons: list[Lesson]  # to be learned, in the order of their versions
    decisions: list[Decision]  # those that are new
    faults: Sequence[StorageUnavailable] = ()  # those among the results
    released: Sequence[Unanswered] = ()  # decisions that waited for feedback and will not be learned
    position: Position = Position()  # of the rows, after this commit
    version: int = 0  # of the learner, once it has learned the lessons
    recovered: PresentState | None = None  # before this commit, where the answer of an earlier one was lost
    changes: int = 0  # in a city with replicas: of what they have in memory, with this commit
    answered: Sequence[int] = ()  # numbers of the decisions that got feedback
    begun: Sequence[Unanswered] = ()  # decisions of other replicas that wait for feedback
    is_whole: bool = True  # `position` covers all rows that were counted

    def after(self, missed: Sequence[Missed]) -> "CommitResult":
        """The same with what was missed before it."""
        if not missed:
            return self
        return self._replace(
            lessons=[*(lesson for each in missed for lesson in each.lessons), *self.lessons],
            decisions=[*(row for each in missed for row in each.decisions), *self.decisions],
            released=[*(row for each in missed for row in each.released), *self.released],
            begun=[row for each in missed for row in each.begun],
        )


def failed(fault: StorageUnavailable, commands: int) -> CommitResult:
    """Of commands that were not committed."""
    return CommitResult([fault] * commands, [], [], [fault])


def joined(outcomes: Sequence[CommitResult], position: Position) -> CommitResult:
    """Of several commits, after the last of which `position` is reached."""
    recovered = [outcome.recovered for outcome in outcomes if outcome.recovered is not None]
    return CommitResult(
        [result for outcome in outcomes for result in outcome.results],
        [lesson for outcome in outcomes for lesson in outcome.lessons],
        [row for outcome in outcomes for row in outcome.decisions],
        [fault for outcome in outcomes for fault in outcome.faults],
        [row for outcome in outcomes for row in outcome.released],
        position,
        recovered=recovered[-1] if recovered else None,
        begun=[row for outcome in outcomes for row in outcome.begun],
    )
