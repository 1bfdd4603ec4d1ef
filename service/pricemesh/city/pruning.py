"""Prune: old rows leave a stopped city's database, and what they taught stays as the base of its learner.

All of it is one transaction, and it is committed only if the learner that a start would now make is the one
that it would have made before.
"""

import numpy as np

from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.relearning import follow_rows, load_base, use_past
from pricemesh.city.settings import Settings
from pricemesh.errors import InvalidParameter, PruneRefused
from pricemesh.runtime import Runtime
from pricemesh.store.pruning import Age, PrunePlan, PruneTransaction
from pricemesh.store.replay import Progress, Replay
from pricemesh.store.stopped_database import StoppedDatabase

MAX_DIFFERENCE = 1e-9  # of any number in the learner's state, relative to it where it is above 1


class Pruning:
    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        older_than_seconds: float,
        database: StoppedDatabase | None = None,
    ) -> None:
        """`database` instead of the one that the settings name."""
        window_seconds = settings.feedback.window_seconds
        if older_than_seconds < window_seconds:
            raise InvalidParameter(
                f"feedback may come for {window_seconds:g} s (feedback.window_seconds), and decisions that "
                "can still get feedback must stay: prune rows that are older than that"
            )
        self._settings = settings
        self._runtime = runtime
        storage = settings.database
        self.database = database or StoppedDatabase(
            storage.url, settings.city, runtime, storage.lock_wait_seconds
        )
        now = runtime.clock()
        self.age = Age(now - older_than_seconds, now, LiveLearner(settings).closes_windows)

    def plan(self) -> PrunePlan:
        """What `carry_out` would do now. The city may serve meanwhile."""
        return self.database.plan_prune(self.age)

    def carry_out(self, progress: Progress = lambda _done, _total: None) -> PrunePlan:
        with self.database.prune(self._settings.schema_description, self.age) as transaction:
            plan = transaction.plan()
            if plan.rows:
                self._prune(transaction, plan, progress)
        return plan

    def _prune(self, transaction: PruneTransaction, plan: PrunePlan, progress: Progress) -> None:
        rows = transaction.replay(progress)
        before = self._fresh(rows)
        learn_through(before, rows, plan.version)
        learned = before.snapshot()
        follow_rows(before, rows)
        serving = self._serving(transaction) or before
        transaction.delete(plan)
        transaction.save(learned, serving.snapshot())
        rows = transaction.replay(progress)
        after = self._fresh(rows)
        follow_rows(after, rows)
        if (worst := difference(before, after)) > MAX_DIFFERENCE:
            raise PruneRefused(
                f"nothing was pruned, because the learner would differ by {worst:.2g} afterwards: this is a "
                "defect of pricemesh, please report it"
            )

    def _fresh(self, rows: Replay) -> LiveLearner:
        """A learner that has learned the base alone."""
        live = LiveLearner(self._settings)
        use_past(live, rows.past)
        load_base(live, rows.past)
        return live

    def _serving(self, transaction: PruneTransaction) -> LiveLearner | None:
        """The learner that a start would go on with, which may know more than the rows: what peers mixed into
        it. None without a snapshot that can be used."""
        stored = transaction.state()
        live = LiveLearner(self._settings)
        use_past(live, stored.past)
        if stored.snapshot is None or not live.load(*stored.snapshot):
            return None
        follow_rows(live, transaction.replay(lambda _done, _total: None))
        return live

    def close(self) -> None:
        self.database.close()


def learn_through(live: LiveLearner, rows: Replay, version: int) -> None:
    """Learn up to this version, and nothing after it."""
    for lessons in rows.lessons(live.version, live.position):
        live.learn(lesson for lesson in lessons if lesson.version <= version)
        if lessons[-1].version >= version:
            break


def difference(one: LiveLearner, other: LiveLearner) -> float:
    """The largest between two learners, in any number of their states and tallies."""
    if (one.version, one.counts, one.position) != (other.version, other.counts, other.position):
        return np.inf
    names = ("lesson_counts", "reward_sums", "units_sold")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    pairs += [(value, other.learner.state()[name]) for name, value in one.learner.state().items()]
    pairs.append((np.array(one.rewards.squares), np.array(other.rewards.squares)))
    return max(float(np.max(np.abs(a - b) / np.maximum(1.0, np.abs(a)), initial=0.0)) for a, b in pairs)
