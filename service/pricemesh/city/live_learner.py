"""The learner that serves: what it has learned, its version, snapshots and peers' part. No SQL, no clock.

After a restart it equals the learner that learned exactly the committed feedback, in the order of versions,
and counts exactly the committed decisions that wait for feedback.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import numpy as np

from pricemesh.city.reward_size import RewardSize
from pricemesh.city.settings import Settings
from pricemesh.core.arrays import Array, Ints
from pricemesh.core.decision import Decision, DecisionCodec
from pricemesh.core.peer_rows import Group, PeerRows
from pricemesh.core.policies import dump, load
from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary
from pricemesh.store.commands import Lesson, Position, SaveSnapshot, Unanswered
from pricemesh.store.commit_result import CommitResult

log = logging.getLogger("pricemesh")

# The most that a start has to learn, or to count, again.
LESSONS_BETWEEN_SNAPSHOTS = 1000
ROWS_BETWEEN_SNAPSHOTS = 5000


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
        arms = settings.shape.arms
        self.lesson_counts = np.zeros(arms)  # by arm
        self.reward_sums = np.zeros(arms)
        self.units_sold = np.zeros(arms)  # stays 0 in a city of values
        self.decision_counts = [0] * arms  # since the start
        self._peer_rows: list[PeerRows] = []  # of the last fold; none while one is running

    @property
    def mixes_committed(self) -> bool:
        return self.committed_mixes == self.mixes

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
        learner = self.learner
        for lesson in lessons:
            context, outcome = self._codec.context(lesson.vectors), self._outcome(lesson)
            learner.learn(context, lesson.arm, outcome, lesson.chance, pending=lesson.waited)
            self.lesson_counts[lesson.arm] += 1
            self.reward_sums[lesson.arm] += lesson.reward
            self.rewards.add(lesson.reward)
            if lesson.sold is not None:
                self.units_sold[lesson.arm] += lesson.sold
            self.version = lesson.version
        if not learner.is_unit_free:
            self.rewards.look()

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
            self.learner.pend(*self._columns(decisions))
            self.rows_since_snapshot += len(decisions)

    def release(self, decisions: Sequence[Unanswered]) -> None:
        """Stop counting decisions that will not be learned."""
        if decisions and self.learner.counts_pending:
            self.learner.release(*self._columns(decisions))
            self.rows_since_snapshot += len(decisions)

    def _columns(self, decisions: Sequence[Decision | Unanswered]) -> tuple[Array, Ints, Array]:
        """Contexts (m, d), arms (m,), and chances (m,), nan where the policy did not predict one."""
        contexts = self._codec.contexts([decision.vectors for decision in decisions])
        arms = np.array([decision.arm for decision in decisions])
        chances = [decision.chance for decision in decisions]  # None becomes nan
        return contexts, arms, np.array(chances, dtype=np.float64)

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

    # Snapshots

    @property
    def policy_parameters(self) -> dict[str, Any]:
        policy = self._settings.policy.policy
        return {"name": policy.name, **asdict(policy)}  # type: ignore[call-overload]

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
            "digest": sha256(payload).hexdigest(),
            "learned": self.lesson_counts.tolist(),
            "reward_sums": self.reward_sums.tolist(),
            "reward_size": [self.rewards.count, self.rewards.squares],
            "units_sold": self.units_sold.tolist(),
            "mixes": self.mixes,
            "position": self.position,
        }
        return SaveSnapshot(self.version, json.dumps(tallies), payload)

    def load(self, payload: bytes, tallies: Mapping[str, Any], version: int) -> None:
        """Go on from a snapshot, unless it is damaged or of another policy: the rows are the truth."""
        if tallies["policy"] != self.policy_parameters:
            log.warning("the policy has changed: learning all feedback again")
            return
        if tallies["digest"] != sha256(payload).hexdigest():
            log.warning("the snapshot is damaged: learning all feedback again")
            return
        load(self.learner, payload)
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
