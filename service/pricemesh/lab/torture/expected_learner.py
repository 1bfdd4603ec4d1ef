"""What a city must have learned: made from the rows that the audit has seen, also from those that were pruned
since, without what is retracted, and read in the terms in force."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

from pricemesh.core.policies import Learner
from pricemesh.lab.torture.past_terms import RowMeaning, meaning
from pricemesh.lab.torture.rows import DecisionRow, FeedbackRow
from pricemesh.lab.torture.simulated_city import SimulatedCity


class PrunedLesson(NamedTuple):
    row: FeedbackRow
    decision: DecisionRow
    is_retracted: bool  # when it was pruned: for ever


class PrunedRows(NamedTuple):
    """What a database cannot tell any more."""

    lessons: tuple[PrunedLesson, ...] = ()  # in the order of versions
    lost: int = 0  # lessons that were pruned, and given up when the terms changed
    version: int = 0  # up to which all lessons were pruned


class ExpectedLearner:
    def __init__(self, city: SimulatedCity, pruned: PrunedRows) -> None:
        self._city = city
        self._learner: Learner | None = None  # None while it has to be made again
        self.pruned = pruned
        self.decisions: dict[int, DecisionRow] = {}  # by number
        self.lessons: list[FeedbackRow] = []  # in the order of versions
        self.waiting: dict[int, DecisionRow] = {}  # for feedback, by number
        self.retracted: frozenset[int] = frozenset()  # feedback, by number
        self.counts: Counter[str] = Counter()  # of lessons: learned, off_ladder, retracted, unreadable
        self._meanings: dict[int, RowMeaning] = {}  # of decisions, by number

    def meaning(self, row: DecisionRow) -> RowMeaning:
        if row.number not in self._meanings:
            self._meanings[row.number] = meaning(row, self._city.terms)
        return self._meanings[row.number]

    # Rows

    def add_decision(self, row: DecisionRow) -> None:
        self.decisions[row.number] = self.waiting[row.number] = row
        if self._learner is not None:
            self._pend(self._learner, row)

    def add_feedback(self, row: FeedbackRow) -> None:
        decision = self.decisions[row.decision]
        waited = self.waiting.pop(row.decision, None) is not None
        if row.version is not None:
            self.lessons.append(row)
        learner = self._learner
        if learner is None:
            return
        if waited:
            self._release(learner, decision)
        if row.version is not None:
            self._learn(learner, row, decision, row.number in self.retracted)

    def close_window(self, number: int) -> None:
        row = self.waiting.pop(number)
        if self._learner is not None:
            self._release(self._learner, row)

    def rewrite(self, retracted: Iterable[int]) -> None:
        """What counts, or how it is read, was changed."""
        self.retracted = frozenset(retracted)
        self._meanings.clear()
        self._learner = None

    def prune(self, decisions: Collection[int]) -> None:
        """These rows left, with their feedback. What they taught stays."""
        gone = [row for row in self.lessons if row.decision in decisions]
        lessons = [
            PrunedLesson(row, self.decisions[row.decision], row.number in self.retracted) for row in gone
        ]
        version = gone[-1].version if gone else None
        self.pruned = PrunedRows(
            (*self.pruned.lessons, *lessons), self.pruned.lost, version or self.pruned.version
        )
        self.lessons = [row for row in self.lessons if row.decision not in decisions]
        for number in decisions:
            del self.decisions[number]
            self.waiting.pop(number, None)

    def lose_pruned(self) -> None:
        """The terms were changed, and what pruned rows taught was given up."""
        lost = self.pruned.lost + len(self.pruned.lessons)
        self.pruned = PrunedRows((), lost, self.pruned.version)

    # The learner

    @property
    def learner(self) -> Learner:
        if self._learner is None:
            self._learner = self._make()
        return self._learner

    def _make(self) -> Learner:
        learner = self._city.settings.learner()
        self.counts.clear()
        for lesson in self.pruned.lessons:
            self._learn(learner, lesson.row, lesson.decision, lesson.is_retracted)
        for row in self.lessons:
            self._learn(learner, row, self.decisions[row.decision], row.number in self.retracted)
        for decision in self.waiting.values():
            self._pend(learner, decision)
        return learner

    def _learn(self, learner: Learner, row: FeedbackRow, decision: DecisionRow, is_retracted: bool) -> None:
        read = self.meaning(decision)
        if is_retracted:
            self.counts["retracted"] += 1
        elif not read.is_within_bounds or (read.arm is None and not learner.reads_price(decision.price)):
            self.counts["unreadable"] += 1
        elif read.arm is None:
            self.counts["off_ladder"] += 1
            learner.learn_at_price(read.context, decision.price, self._outcome(row), decision.chance)
        else:
            self.counts["learned"] += 1
            learner.learn(read.context, read.arm, self._outcome(row), decision.chance, pending=False)

    def _outcome(self, row: FeedbackRow) -> float:
        if not self.learns_sales:
            return row.reward
        assert row.sold is not None
        return row.sold / self._city.settings.reward.max_units

    @property
    def learns_sales(self) -> bool:
        return self._city.settings.policy.name == "demand"

    def _pend(self, learner: Learner, row: DecisionRow) -> None:
        if (counted := self._counted(row)) is not None:
            learner.pend(*counted)

    def _release(self, learner: Learner, row: DecisionRow) -> None:
        if (counted := self._counted(row)) is not None:
            learner.release(*counted)

    def _counted(self, row: DecisionRow) -> tuple[Any, Any, Any] | None:
        """As `Learner.pend` takes a decision; None where it has no arm of today."""
        read = self.meaning(row)
        if read.arm is None or not read.is_within_bounds:
            return None
        chances = None if row.chance is None else np.array([row.chance])
        return read.context[None], np.array([read.arm]), chances
