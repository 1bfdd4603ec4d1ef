"""The learner that serves: what it has learned, its version, snapshots and peers' part. No SQL, no clock.

After a restart it equals the learner that learned exactly the committed feedback that is not retracted, in
the order of versions, and counts exactly the committed decisions that wait for feedback. Rows that were made
for other arms or features are read in the present terms; those that cannot be are passed over.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from pricemesh.city.reward_size import RewardSize
from pricemesh.city.settings import Settings
from pricemesh.core.arrays import Array, Ints
from pricemesh.core.decision import NO_ARM, Decision, DecisionCodec
from pricemesh.core.peer_rows import Group, PeerRows
from pricemesh.core.policies import dump, learning_changes, load
from pricemesh.core.summary import Summary
from pricemesh.core.terms import Reading, Terms
from pricemesh.errors import BadSummary, NotStarted
from pricemesh.store.commands import Lesson, Position, SaveSnapshot, Unanswered
from pricemesh.store.commit_result import CommitResult

log = logging.getLogger("pricemesh")

# The most that a start has to learn, or to count, again.
LESSONS_BETWEEN_SNAPSHOTS = 1000
ROWS_BETWEEN_SNAPSHOTS = 5000
_SNAPSHOT_LIMITS = ("lessons_between_snapshots", "rows_between_snapshots")


@dataclass
class LessonCounts:
    """Of lessons that are no arm's."""

    retracted: int = 0
    unreadable: int = 0  # in the present terms
    off_ladder: int = 0  # learned of a price that is no arm's


class ReadRow(NamedTuple):
    """A decision in the present terms."""

    context: Array
    arm: int
    price: float


class LiveLearner:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._codec = DecisionCodec(settings.shape)
        self.learner = settings.learner()
        self.rewards = RewardSize(settings.reward.scale)
        self.version = 0
        self.mixes = 0  # ticks that changed what this city publishes
        self.committed_mixes = 0  # of these, how many are committed
        self.snapshot_version = 0  # of the newest snapshot that was submitted
        self.lessons_between_snapshots = LESSONS_BETWEEN_SNAPSHOTS
        self.rows_between_snapshots = ROWS_BETWEEN_SNAPSHOTS
        self.position = Position()  # of the rows that the learner has counted
        self.is_whole = True  # it has counted no row after them
        self.rows_since_snapshot = 0  # that began or stopped to wait for feedback
        self.terms: int | None = None  # that decisions are made under now; None are the first ones
        self.terms_by_id: Mapping[int, Terms] = {}  # all that the city has had
        self.readings: Mapping[int | None, Reading] = {}  # of rows made under other terms, by these
        self.rewrites = 0  # of the past that this learner has learned
        self.counts = LessonCounts()
        arms = settings.shape.arms
        self.lesson_counts = np.zeros(arms)  # by arm
        self.reward_sums = np.zeros(arms)
        self.units_sold = np.zeros(arms)  # stays 0 in a city of values
        self.decision_counts = [0] * arms  # since the start
        self._peer_rows: list[PeerRows] = []  # of the last fold; none while one is running

    @property
    def mixes_committed(self) -> bool:
        return self.committed_mixes == self.mixes

    @property
    def closes_windows(self) -> bool:
        """Whether the city settles decisions whose window has closed."""
        return self._settings.feedback.default_amount is not None or self.learner.counts_pending

    # Own data

    def follow(self, outcome: CommitResult) -> None:
        """Learn and count what a commit did."""
        self.count(outcome.decisions)
        self.pend(outcome.decisions)
        self.pend(outcome.begun)
        self.learn(outcome.lessons)
        self.release(outcome.released)
        self.position, self.is_whole = outcome.position, outcome.is_whole

    def learn(self, lessons: Iterable[Lesson]) -> None:
        for lesson in lessons:
            if lesson.terms == self.terms and lesson.arm != NO_ARM and not lesson.is_retracted:
                self._learn_at_arm(lesson, self._codec.context(lesson.vectors), lesson.arm)
            else:
                self._learn_otherwise(lesson)
            self.version = lesson.version
        if not self.learner.is_unit_free:
            self.rewards.look()

    def _learn_at_arm(self, lesson: Lesson, context: Array, arm: int) -> None:
        outcome = self._outcome(lesson)
        self.learner.learn(context, arm, outcome, lesson.chance, pending=lesson.waited)
        self.lesson_counts[arm] += 1
        self.reward_sums[arm] += lesson.reward
        self.rewards.add(lesson.reward)
        if lesson.sold is not None:
            self.units_sold[arm] += lesson.sold

    def _learn_otherwise(self, lesson: Lesson) -> None:
        """A lesson that is retracted, of other terms, or of a price that is no arm's."""
        row = None
        if not lesson.is_retracted:
            row = self._read(lesson.arm, lesson.vectors, lesson.terms, lesson.price)
        if row is not None and row.arm != NO_ARM:
            self._learn_at_arm(lesson, row.context, row.arm)
            return
        if lesson.waited:
            self.release([Unanswered(lesson.arm, lesson.vectors, lesson.chance, lesson.terms)])
        if lesson.is_retracted:
            self.counts.retracted += 1
        elif row is None or not self.learner.reads_price(row.price):
            self.counts.unreadable += 1
        else:
            self.learner.learn_at_price(row.context, row.price, self._outcome(lesson), lesson.chance)
            self.counts.off_ladder += 1
            self.rewards.add(lesson.reward)

    def _read(self, arm: int, vectors: bytes, terms: int | None, price: float) -> ReadRow | None:
        """A row in the present terms; None where it cannot be read in them."""
        if terms == self.terms:
            return ReadRow(self._codec.context(vectors), arm, price)
        reading = self.readings[terms]
        context = reading.context(vectors)
        if not reading.is_within_bounds(context):
            return None
        return ReadRow(context, reading.arm(arm, price), reading.price(arm, price))

    def _outcome(self, lesson: Lesson) -> float:
        """What the policy learns: the reward, or the share of the units that was sold."""
        if not self.learner.learns_sales:
            return lesson.reward
        assert lesson.sold is not None
        return lesson.sold / self._settings.reward.max_units

    def count(self, decisions: Sequence[Decision]) -> None:
        counts = self.decision_counts
        for decision in decisions:
            counts[decision.arm] += 1

    def pend(self, decisions: Sequence[Decision | Unanswered]) -> None:
        """Count decisions until their feedback comes."""
        if decisions and self.learner.counts_pending:
            self._count_waiting(self.learner.pend, decisions)

    def release(self, decisions: Sequence[Unanswered]) -> None:
        """Stop counting decisions that will not be learned."""
        if decisions and self.learner.counts_pending:
            self._count_waiting(self.learner.release, decisions)

    def _count_waiting(
        self, count: Callable[[Array, Ints, Array], None], decisions: Sequence[Decision | Unanswered]
    ) -> None:
        """Those that were made under other terms only if they have an arm of today."""
        self.rows_since_snapshot += len(decisions)
        if all(_terms_of(decision) == self.terms for decision in decisions):
            contexts = self._codec.contexts([decision.vectors for decision in decisions])
            arms = [decision.arm for decision in decisions]
            chances = [decision.chance for decision in decisions]  # None becomes nan
        else:
            rows = [self._read(each.arm, each.vectors, _terms_of(each), 0.0) for each in decisions]
            pairs = zip(rows, decisions, strict=True)
            known = [(row, each) for row, each in pairs if row is not None and row.arm != NO_ARM]
            if not known:
                return
            contexts = np.stack([row.context for row, _ in known])
            arms = [row.arm for row, _ in known]
            chances = [each.chance for _, each in known]
        count(contexts, np.array(arms), np.array(chances, dtype=np.float64))

    def arms(self) -> list[dict[str, Any]]:
        """What each arm has brought so far."""
        means = self.reward_sums / np.maximum(self.lesson_counts, 1)
        is_purchase = self._settings.reward.is_purchase
        return [
            {
                "arm": arm,
                "price": price,
                "count": int(self.lesson_counts[arm]),
                "mean_reward": float(means[arm]) if self.lesson_counts[arm] else None,
                "units_sold": float(self.units_sold[arm]) if is_purchase else None,
            }
            for arm, price in enumerate(self._settings.arms.prices)
        ]

    @property
    def lessons_learned(self) -> int:
        """Without those that are retracted or cannot be read in the present terms."""
        return int(self.lesson_counts.sum()) + self.counts.off_ladder

    # Snapshots

    @property
    def policy_parameters(self) -> dict[str, Any]:
        policy = self._settings.policy.policy
        return {"name": policy.name, **asdict(policy)}  # type: ignore[call-overload]

    @property
    def units(self) -> list[float]:
        """In which rewards, or prices, are learned."""
        ladder = self._settings.shape.ladder
        if ladder is not None and self.learner.learns_sales:
            return [ladder.low, ladder.high]
        return [self.learner.unit]

    @property
    def snapshot_due(self) -> bool:
        return self.is_whole and (
            self.version - self.snapshot_version >= self.lessons_between_snapshots
            or self.rows_since_snapshot >= self.rows_between_snapshots
        )

    @property
    def has_unsaved_rows(self) -> bool:
        return self.is_whole and (self.version > self.snapshot_version or self.rows_since_snapshot > 0)

    def snapshot_submitted(self, snapshot: SaveSnapshot) -> None:
        self.snapshot_version, self.rows_since_snapshot = snapshot.version, 0

    def snapshot(self) -> SaveSnapshot:
        payload = dump(self.learner)
        tallies = {
            "policy": self.policy_parameters,
            "units": self.units,
            "digest": sha256(payload).hexdigest(),
            "learned": self.lesson_counts.tolist(),
            "reward_sums": self.reward_sums.tolist(),
            "reward_size": [self.rewards.count, self.rewards.squares],
            "units_sold": self.units_sold.tolist(),
            "mixes": self.mixes,
            "position": self.position,
            "rewrites": self.rewrites,
            "terms": self.terms,
            "counts": asdict(self.counts),
        }
        return SaveSnapshot(self.version, json.dumps(tallies), payload)

    def load(self, payload: bytes, tallies: Mapping[str, Any], version: int) -> bool:
        """Go on from a snapshot, unless it is damaged, of another policy or of another past: the rows are the
        truth."""
        if tallies["policy"] != self.policy_parameters:
            log.warning("the policy has changed: learning all feedback again")
            return False
        if tallies.get("units", self.units) != self.units:
            log.warning("reward.scale or arms.range has changed: learning all feedback again")
            return False
        if tallies["digest"] != sha256(payload).hexdigest():
            log.warning("the snapshot is damaged: learning all feedback again")
            return False
        if (tallies.get("rewrites", 0), tallies.get("terms")) != (self.rewrites, self.terms):
            log.info("what the learner learns from has changed: learning all feedback again")
            return False
        self._load(payload, tallies, version)
        return True

    def load_base(self, payload: bytes, tallies: Mapping[str, Any], version: int) -> None:
        """Begin with what pruned rows taught: nothing else has it."""
        if tallies["digest"] != sha256(payload).hexdigest():
            raise NotStarted("what pruned rows taught is damaged in the database: restore a backup")
        changes = learning_changes(tallies["policy"], self.policy_parameters)
        if tallies["units"] != self.units:
            changes.append(f"reward.scale or arms.range was {tallies['units']}, is now {self.units}")
        if tallies["terms"] != self.terms:
            changes.append("arms or features were others")
        if changes:
            raise NotStarted(
                f"old rows of this city were pruned, and what they taught was learned otherwise "
                f"({'; '.join(changes)}). It cannot be learned again without them: put the old values back, "
                "restore a backup from before `pricemesh prune`, or begin anew with another database.url"
            )
        self._load(payload, tallies, version)
        self.snapshot_version = 0

    def _load(self, payload: bytes, tallies: Mapping[str, Any], version: int) -> None:
        load(self.learner, payload)
        self.counts = LessonCounts(**tallies.get("counts", {}))
        self.lesson_counts[:] = tallies["learned"]
        self.reward_sums[:] = tallies["reward_sums"]
        self.units_sold[:] = tallies.get("units_sold", 0.0)  # snapshots made before there were purchases
        self.rewards.count, self.rewards.squares = tallies.get("reward_size", (0, 0.0))
        self.mixes = self.committed_mixes = tallies.get("mixes", 0)
        self.version = self.snapshot_version = version
        self.position = Position(*tallies.get("position", ()))

    # Peers

    def fold(self, group: Group, *, again: bool = False) -> Any:
        """As `Learner.fold`; what depends on one peer alone is computed again only for peers whose summary
        changed since the last fold. Runs in a thread. A fold takes the rows with it, so that one whose caller
        gave up waiting shares them with no other; after a fault the next one starts without."""
        try:
            rows = self._peer_rows.pop()
        except IndexError:
            rows = PeerRows()
        folded = self.learner.fold(rows.stack(self.learner, group), group.origins, again=again)
        self._peer_rows[:] = [rows]
        return folded

    def restore_peers(self, memory: Mapping[str, Any], summaries: Mapping[str, Summary]) -> bool:
        """After a restart, count peers as before it. False where that is impossible until the next absorb."""
        arrays = dict(memory)
        origins = tuple(arrays.pop("origins", ()))
        try:
            if arrays.keys() == self.learner.memory().keys() and origins:
                self.learner.recall(origins, {name: np.array(value) for name, value in arrays.items()})
            group = self.learner.group_of(self._settings.city, summaries)
            self.learner.adopt(self.fold(group, again=True))
        except (BadSummary, ValueError) as fault:
            log.warning("peers count again after the next tick", extra={"fault": str(fault)})
            return False
        return True

    def tick_memory(self) -> str | None:
        """What ticks have changed that no later tick brings back, as JSON; None where there is nothing."""
        memory = {name: value.tolist() for name, value in self.learner.memory().items()}
        return json.dumps({"origins": self.learner.origins, **memory}) if memory else None

    def become(self, other: "LiveLearner") -> None:
        """Take over what another one has learned from the same rows."""
        own = ("decision_counts", "mixes", "committed_mixes", *_SNAPSHOT_LIMITS)
        vars(self).update(vars(other) | {name: getattr(self, name) for name in own})


def _terms_of(decision: Decision | Unanswered) -> int | None:
    return decision.terms if isinstance(decision, Unanswered) else decision.occasion.terms
