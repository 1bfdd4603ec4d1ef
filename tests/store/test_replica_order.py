"""Replicas on one Postgres, without a city around them: one order of rows, each learned and counted once."""

import threading
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
import sqlalchemy as sa

from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.relearning import follow_rows, use_past
from pricemesh.city.settings import Settings
from pricemesh.core.decision import Decision, Occasion
from pricemesh.errors import DatabaseInUse
from pricemesh.runtime import Runtime
from pricemesh.store.commands import (
    CloseWindow,
    Command,
    FeedbackStatus,
    SaveDecisions,
    SaveFeedback,
    SetControl,
)
from pricemesh.store.commit_result import CommitResult
from pricemesh.store.database import Database
from pricemesh.store.shared_database import SharedDatabase
from tests.running import settings_for

ARMS, DIMENSION = 5, 5


class Replica:
    """A database and a learner that follows it, as the city's loop makes it."""

    def __init__(self, settings: Settings, database: Database | None = None) -> None:
        url = settings.database.url
        self.database = database or SharedDatabase(url, "lisbon", Runtime())
        self.live = LiveLearner(settings)
        self.states: list[object] = []
        stored = self.database.open(settings.schema_description)
        use_past(self.live, stored.past)
        if stored.snapshot is not None:
            self.live.load(*stored.snapshot)
        follow_rows(self.live, self.database)

    def commit(self, *commands: Command) -> CommitResult:
        outcome = self.database.commit(commands)
        self._learn(outcome)
        return outcome

    def follow(self) -> bool:
        assert isinstance(self.database, SharedDatabase)
        outcome = self.database.follow()
        if outcome is not None:
            self._learn(outcome)
        return outcome is not None

    def _learn(self, outcome: CommitResult) -> None:
        self.live.follow(outcome)
        if outcome.recovered is not None:
            self.states.append(outcome.recovered)

    def price(self, rng: Random, *ids: str) -> CommitResult:
        return self.commit(SaveDecisions([decision(rng, id_) for id_ in ids], frozenset(ids)))

    def feedback(self, *ids: str, reward: float = 1.0, frozen: bool = False) -> CommitResult:
        return self.commit(SaveFeedback([(id_, reward) for id_ in ids], 2.0, frozen, 0.0))


def decision(rng: Random, id_: str) -> Decision:
    numbers = [rng.random() for _ in range(DIMENSION)] + [0.0] * (2 * ARMS)
    vectors = np.array(numbers).tobytes()
    return Decision(
        id_, None, rng.randrange(ARMS), 8.0, "[]", vectors, 1.0, None, Occasion(1.0, "netpool", 0)
    )


@pytest.fixture
def settings(postgres_url: str) -> Settings:
    return settings_for(postgres_url)


@pytest.fixture
def replicas(settings: Settings) -> Iterator[list[Replica]]:
    replicas = [Replica(settings) for _ in range(3)]
    yield replicas
    for replica in replicas:
        replica.database.close()


def assert_equal(one: LiveLearner, other: LiveLearner) -> None:
    assert (one.version, one.position) == (other.version, other.position)
    for name, value in one.learner.state().items():
        np.testing.assert_allclose(value, other.learner.state()[name], rtol=1e-9, atol=1e-9)
    assert one.lesson_counts.tolist() == other.lesson_counts.tolist()


def test_rows_of_others_are_learned_and_counted_in_one_order(
    settings: Settings, replicas: list[Replica]
) -> None:
    first, second, third = replicas
    rng = Random(1)
    first.price(rng, "a", "b")
    second.price(rng, "c")  # has not read a and b
    assert not second.live.is_whole
    first.price(rng, "d")
    versions = [second.feedback("a").version, first.feedback("c", "b").version]
    assert versions == [1, 3]
    third.feedback("d", frozen=True)
    second.price(rng, "e")
    for replica in replicas:
        replica.follow()
        assert not replica.follow()
        assert replica.live.is_whole
    for replica in replicas:
        replica.database.close()
    single = Replica(settings, Database(settings.database.url, "lisbon", Runtime()))
    for replica in replicas:
        assert_equal(replica.live, single.live)
    single.database.close()


def test_one_decision_and_one_feedback_where_two_replicas_meet(replicas: list[Replica]) -> None:
    first, second, _ = replicas
    rng = Random(2)
    (one,) = first.price(rng, "same").results
    (other,) = second.price(rng, "same").results
    assert one[0] == other[0]
    statuses = [replica.feedback("same").results[0][0].status for replica in (first, second)]
    assert statuses == [FeedbackStatus.LEARNED, FeedbackStatus.AGAIN]
    (conflict,) = second.feedback("same", reward=2.0).results
    assert conflict[0].status is FeedbackStatus.OTHER_REWARD


def test_closed_windows_and_controls_reach_the_others(replicas: list[Replica]) -> None:
    first, second, third = replicas
    rng = Random(3)
    second.price(rng, "a", "b", "c")
    third.feedback("b")
    first.commit(CloseWindow(5.0, None, 10.0, False), SetControl("pin", '{"arm": 1}', 10.0))
    for replica in replicas:
        replica.follow()
        assert replica.live.position.settled == 3
        np.testing.assert_allclose(replica.live.learner.state()["pending"], 0.0, atol=1e-12)
    assert not first.states
    assert len(second.states) == len(third.states) == 1


@pytest.mark.parametrize("seed", range(3))
def test_replicas_that_write_at_once_come_to_the_same_learner(
    settings: Settings, replicas: list[Replica], seed: int
) -> None:
    """Ids are repeated across replicas, and feedback too, with and without the same reward."""

    def work(place: int) -> None:
        rng, replica = Random(10 * seed + place), replicas[place]
        for i in range(60):
            action, number = rng.random(), rng.randrange(max(1, 2 * i), 2 * i + 6)
            if action < 0.5:
                replica.price(rng, *(f"d{number + j}" for j in range(rng.randrange(1, 4))))
            elif action < 0.8:
                ids = {f"d{rng.randrange(2 * i + 3)}" for _ in range(3)}
                replica.feedback(*ids, reward=float(rng.randrange(2)), frozen=rng.random() < 0.1)
            elif action < 0.85 and place == 0:
                replica.commit(CloseWindow(5.0, None, 10.0, False, limit=3))
            else:
                replica.follow()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for replica in replicas:
        replica.follow()
        replica.database.close()
    single = Replica(settings, Database(settings.database.url, "lisbon", Runtime()))
    assert single.live.version > 20
    for replica in replicas:
        assert_equal(replica.live, single.live)
    single.database.close()
    engine = sa.create_engine(settings.database.url)
    with engine.connect() as connection:
        query = sa.text("SELECT version FROM feedback WHERE version IS NOT NULL ORDER BY version")
        versions = list(connection.scalars(query))
    engine.dispose()
    assert versions == list(range(1, len(versions) + 1))


def test_a_process_that_must_be_alone_and_replicas_keep_each_other_out(settings: Settings) -> None:
    alone = Database(settings.database.url, "lisbon", Runtime())
    alone.open(settings.schema_description)
    with pytest.raises(DatabaseInUse, match="replicas"):
        SharedDatabase(settings.database.url, "lisbon", Runtime()).open(settings.schema_description)
    alone.close()
    replica = Replica(settings)
    with pytest.raises(DatabaseInUse):
        Database(settings.database.url, "lisbon", Runtime()).open(settings.schema_description)
    replica.database.close()
