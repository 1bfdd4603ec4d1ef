"""Copies of a city's past without some of its rows, for what must be as if they had never been."""

from collections.abc import Collection

import numpy as np
import sqlalchemy as sa

from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.core.decision import COLUMNS, Decision
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Margins, SaveDecisions, SaveFeedback
from pricemesh.store.database import Database
from pricemesh.store.tables import decisions, feedback


def copy_without(source_url: str, target: Settings, omitted: Collection[str]) -> None:
    """Write all decisions but these, and their feedback in the order of versions, into a new database."""
    engine = sa.create_engine(source_url)
    with engine.connect() as connection:
        columns = [decisions.c[name] for name in COLUMNS]
        rows = connection.execute(sa.select(*columns).order_by(decisions.c.number)).all()
        answers = connection.execute(
            sa.select(decisions.c.id, feedback.c.reward, feedback.c.sold)
            .join_from(feedback, decisions, feedback.c.decision == decisions.c.number)
            .order_by(feedback.c.version)
        ).all()
    engine.dispose()
    items = [(row.id, row.reward if row.sold is None else row.sold) for row in answers]
    database = Database(target.database.url, target.city, Runtime())
    database.open(target.schema_description)
    assert list(database.lessons(0)) == []
    database.commit(
        [SaveDecisions([row for row in map(Decision.from_columns, rows) if row.id not in omitted])]
    )
    honest = [item for item in items if item[0] not in omitted]
    margins: Margins | None = None if target.margin is None else {None: target.margin}
    database.commit([SaveFeedback(honest, 1.0, False, 0.0, margins)])
    database.close()


def learner_without(source_url: str, target: Settings, omitted: Collection[str]) -> LiveLearner:
    """The learner of a city that never had these decisions."""
    copy_without(source_url, target, omitted)
    pricing = Pricing(target, Runtime())
    pricing.open()
    pricing.database.close()
    return pricing.live


def assert_same_learner(one: LiveLearner, other: LiveLearner, tolerance: float = 1e-9) -> None:
    state = other.learner.state()
    assert one.learner.state().keys() == state.keys()
    for name, value in one.learner.state().items():
        np.testing.assert_allclose(value, state[name], rtol=tolerance, atol=tolerance, err_msg=name)
    np.testing.assert_array_equal(one.lesson_counts, other.lesson_counts)
    np.testing.assert_allclose(one.reward_sums, other.reward_sums, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(one.units_sold, other.units_sold)
    assert one.rewards.count == other.rewards.count
    np.testing.assert_allclose(one.rewards.squares, other.rewards.squares, rtol=tolerance)
    np.testing.assert_allclose(one.learner.numbers(), other.learner.numbers(), rtol=tolerance, atol=tolerance)
