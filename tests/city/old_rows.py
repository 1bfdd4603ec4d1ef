"""Weeks of decisions and late feedback in a database, and their learner by brute force."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.pricing import Pricing
from pricemesh.city.pruning import Pruning
from pricemesh.city.settings import Settings
from pricemesh.core.decision import Decision, Occasion
from pricemesh.core.policies import Learner
from pricemesh.runtime import Runtime
from pricemesh.store.commands import CloseWindow, Margins, SaveDecisions, SaveFeedback
from pricemesh.store.database import Database
from pricemesh.store.pruning import PrunePlan
from pricemesh.store.tables import base, city, decisions, feedback, learner, retracted
from tests.running import settings_for

DAY = 86_400.0
START = 1_700_000_000.0
WINDOW_DAYS = 5
PER_DAY = 8


class Row(NamedTuple):
    """A decision with its feedback, as it was stored."""

    number: int
    arm: int
    context: np.ndarray
    chance: float | None
    version: int | None
    amount: float | None  # None without feedback
    is_retracted: bool


def years_settings(url: str, policy: dict[str, Any], **sections: Any) -> Settings:
    name = policy["name"]
    reward = {"kind": "purchase"} if name == "demand" else {"kind": "value", "largest": 1e6}
    feedback_ = {"window_seconds": WINDOW_DAYS * DAY}
    return settings_for(url, policy=policy, **{"reward": reward, "feedback": feedback_, **sections})


def clock_at(day: float) -> Runtime:
    return replace(Runtime(), clock=lambda: START + day * DAY)


def write_days(settings: Settings, days: range, per_day: int = PER_DAY) -> None:
    """Some feedback comes at once, some days later, some never, and on some days learning is frozen."""
    rng = Random(str(days))
    database = Database(settings.database.url, settings.city, Runtime(), lock_wait_seconds=10.0)
    database.open(settings.schema_description)
    version = _newest(database, feedback.c.version)
    assert not list(database.lessons(version))
    margins: Margins | None = None if settings.margin is None else {None: settings.margin}
    due: dict[int, list[tuple[str, float]]] = {}
    for day in days:
        at = START + day * DAY
        rows = [_decision(settings, f"{day}-{i}", at, rng) for i in range(per_day)]
        database.commit([SaveDecisions(rows)])
        for row in rows:
            if rng.random() < 0.8:
                amount = float(rng.random() < 0.5) if settings.margin else rng.gauss(1.0, 1.0)
                due.setdefault(day + rng.randrange(WINDOW_DAYS), []).append((row.id, amount))
        items = due.pop(day, [])
        decided_after = at - WINDOW_DAYS * DAY
        if items:
            database.commit([SaveFeedback(items, at, day % 7 == 3, decided_after, margins)])
        close = CloseWindow(decided_after, settings.feedback.default_amount, at, False, margins)
        while settings.learner().counts_pending and database.commit([close]).results[0]:
            pass
    database.close()


def _newest(database: Database, column: Any) -> int:
    with database.reader._backend.engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.max(column))) or 0


def _decision(settings: Settings, id_: str, at: float, rng: Random) -> Decision:
    shape = settings.shape
    context = [rng.random() for _ in range(shape.dim)]
    vectors = np.array([*context, *[0.0] * (2 * shape.arms)]).tobytes()
    arm = rng.randrange(shape.arms)
    chance = rng.uniform(0.2, 0.8) if settings.margin else None
    subject = f"customer{rng.randrange(20)}"
    price = settings.arms.prices[arm]
    return Decision(id_, subject, arm, price, "[]", vectors, 1.0, chance, Occasion(at, "test", 0))


class Tables:
    """What is in a database, read and changed past pricemesh."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = sa.create_engine(settings.database.url)

    def execute(self, statement: Any) -> Any:
        with self._engine.begin() as connection:
            result = connection.execute(statement)
            return result.all() if result.returns_rows else None

    def rows(self) -> list[Row]:
        dim = self._settings.shape.dim
        amount = feedback.c.sold if self._settings.margin else feedback.c.reward
        is_retracted = sa.exists().where(retracted.c.feedback == feedback.c.number)
        return [
            Row(row[0], row[1], np.frombuffer(row[2], count=dim), *row[3:])
            for row in self.execute(
                sa.select(
                    decisions.c.number,
                    decisions.c.arm,
                    decisions.c.vectors,
                    decisions.c.chance,
                    feedback.c.version,
                    amount,
                    is_retracted,
                )
                .select_from(decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number))
                .order_by(decisions.c.number)
            )
        ]

    def settled(self) -> int:
        return int(self.execute(sa.select(city.c.settled_through))[0][0])

    def numbers(self) -> tuple[int, int, int]:
        """The newest decision, feedback and version."""
        columns = (decisions.c.number, feedback.c.number, feedback.c.version)
        return tuple(self.execute(sa.select(sa.func.max(column)))[0][0] for column in columns)

    def base_version(self) -> int | None:
        found = self.execute(sa.select(base.c.version))
        return int(found[0][0]) if found else None

    def save_snapshot(self, live: LiveLearner) -> None:
        version, tallies, payload = (snapshot := live.snapshot()).version, snapshot.tallies, snapshot.payload
        self.forget_snapshot()
        self.execute(learner.insert().values(id=1, version=version, tallies=tallies, payload=payload))

    def forget_snapshot(self) -> None:
        self.execute(learner.delete())

    def rewrite_past(self) -> None:
        self.execute(city.update().values(rewrites=city.c.rewrites + 1))

    def retract(self, versions: Iterator[int] | list[int]) -> None:
        for version in versions:
            number = sa.select(feedback.c.number).where(feedback.c.version == version)
            number_and_retraction = number.add_columns(sa.literal(1))
            self.execute(retracted.insert().from_select(["feedback", "retraction"], number_and_retraction))
        self.rewrite_past()

    def close(self) -> None:
        self._engine.dispose()


def brute_force(settings: Settings, rows: list[Row], settled: int) -> Learner:
    """The learner of these rows: every lesson in the order of versions, and what waits."""
    expected = settings.learner()
    lessons = sorted((row for row in rows if row.version is not None), key=lambda row: row.version or 0)
    for row in lessons:
        if not row.is_retracted:
            expected.learn(row.context, row.arm, row.amount, row.chance)
    for row in rows:
        if row.amount is None and row.number > settled:
            chances = np.array([row.chance], dtype=np.float64)
            expected.pend(row.context[None], np.array([row.arm]), chances)
    return expected


def started(settings: Settings) -> LiveLearner:
    """The learner with which a city starts."""
    pricing = Pricing(settings, Runtime())
    pricing.open()
    pricing.database.close()
    return pricing.live


def prune(settings: Settings, *, at_day: float, older_than_days: float) -> PrunePlan:
    pruning = Pruning(settings, clock_at(at_day), older_than_days * DAY)
    try:
        return pruning.carry_out()
    finally:
        pruning.close()


def assert_equal(settings: Settings, actual: Learner, expected: Learner) -> None:
    """State and scores, to 1e-9."""
    for name, value in expected.state().items():
        np.testing.assert_allclose(actual.state()[name], value, rtol=1e-9, atol=1e-9, err_msg=name)
    contexts = np.random.default_rng(5).random((20, settings.shape.dim))
    for one, other in zip(actual.score(contexts), expected.score(contexts), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
