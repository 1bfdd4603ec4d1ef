"""What alerts say of rows, and that they say nothing of ordinary ones."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pricemesh.city.alerts import MAX_T, Alert, alerts_of_rows, is_unusual, read_facts
from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.settings import Settings
from pricemesh.core.decision import Decision, Margin, Occasion
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Margins, SaveDecisions, SaveFeedback
from pricemesh.store.database import Database
from tests.running import settings_for

HOUR, WEEK = 3600.0, 7 * 86_400.0
NOW = 1_790_000_000.0 - 1_790_000_000.0 % HOUR + 1800.0
MARGINS: Margins = {None: Margin()}


class Rows:
    """A city of purchases whose rows a test writes at any time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.database.url, settings.city, Runtime())
        self.database.open(settings.schema_description)
        assert not list(self.database.lessons(0))
        self._count = 0
        self._rng = Random(1)

    def decide(self, at: float, count: int, arm: int = 2, best: int = 2, rules: str = "[]") -> list[str]:
        shape = self.settings.shape
        estimates = np.zeros(shape.arms)
        estimates[best] = 1.0
        vectors = np.concatenate([np.zeros(shape.dim), estimates, np.zeros(shape.arms)]).tobytes()
        price = self.settings.arms.prices[arm]
        ids = [f"d{self._count + i}" for i in range(count)]
        self._count += count
        occasion = Occasion(at, "demand", 0)
        rows = [Decision(id_, None, arm, price, rules, vectors, 1.0, 0.5, occasion) for id_ in ids]
        self.database.commit([SaveDecisions(rows)])
        return ids

    def answer(self, ids: list[str], at: float, chance: float) -> None:
        items = [(id_, float(self._rng.random() < chance)) for id_ in ids]
        self.database.commit([SaveFeedback(items, at, False, 0.0, MARGINS)])

    def hour(self, at: float, chance: float) -> None:
        """Every arm that is allowed is tried."""
        ids = [id_ for arm in range(4) for id_ in self.decide(at, 50, arm=arm, best=arm)]
        self.answer(ids, at + 60.0, chance)

    def alerts(self, now: float = NOW) -> list[Alert]:
        read = partial(read_facts, settings=self.settings, terms=None, now=now)
        facts = self.database.reader.read_at_once(read)
        return alerts_of_rows(self.settings, LiveLearner(self.settings), facts)

    def kinds(self, now: float = NOW) -> list[tuple[str, str | None]]:
        return [(alert.kind, alert.about) for alert in self.alerts(now)]


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    url = f"sqlite:///{tmp_path}/city.db"
    rows = Rows(settings_for(url, reward={"kind": "purchase"}, guardrails={"ceiling": 11.0}))
    yield rows
    rows.database.close()


@pytest.mark.parametrize("freedom", sorted(MAX_T))
def test_the_quantiles_are_those_of_students_t(freedom: int) -> None:
    """Two-sided 1e-4, by the integral of the density."""
    t = np.linspace(-MAX_T[freedom], MAX_T[freedom], 2_000_001)
    density = (1 + t * t / freedom) ** (-(freedom + 1) / 2)
    wide = np.sinh(np.linspace(-25.0, 25.0, 2_000_001))  # up to 3.6e10, where nothing is left
    whole = (1 + wide * wide / freedom) ** (-(freedom + 1) / 2)
    inside = np.trapezoid(density, t) / np.trapezoid(whole, wide)
    assert 1 - inside == pytest.approx(1e-4, rel=1e-3)


def test_false_alarms_are_as_rare_as_promised() -> None:
    """20,000 usual hours: 2 expected at 1e-4; more than 10 has a chance below 1e-5."""
    draws = np.random.default_rng(7).normal(5.0, 1.0, (20_000, 9))
    assert sum(is_unusual(values[0], values[1:].tolist()) for values in draws) <= 10


def test_too_few_former_weeks_are_never_unusual() -> None:
    assert not is_unusual(100.0, [1.0, 1.1, 0.9])
    assert is_unusual(100.0, [1.0, 1.1, 0.9, 1.0])


def test_an_hour_like_the_same_hour_of_former_weeks_is_no_alert(rows: Rows) -> None:
    at = NOW - 1800.0 - HOUR + 100.0  # the last full hour
    for week in range(8, 0, -1):
        rows.hour(at - week * WEEK, 0.5)
    rows.hour(at, 0.5)
    assert rows.kinds() == []
    rows.hour(at - 24 * HOUR, 0.0)  # another hour of the week has no former ones
    assert rows.kinds() == []


def test_an_hour_without_sales_is_an_alert(rows: Rows) -> None:
    at = NOW - 1800.0 - HOUR + 100.0
    for week in range(8, 0, -1):
        rows.hour(at - week * WEEK, 0.5)
    rows.hour(at, 0.0)
    unusual = rows.alerts()
    assert [alert.kind for alert in unusual] == ["unusual reward", "unusual conversion"]
    assert {alert.since for alert in unusual} == {NOW - 1800.0 - HOUR}
    assert "0.00%" in unusual[1].text


def test_feedback_that_has_stopped_is_an_alert_when_it_is_overdue(rows: Rows) -> None:
    ids = rows.decide(NOW - 3 * HOUR, 100)
    rows.answer(ids[1::2], NOW - 3 * HOUR + 900.0, 0.5)
    rows.decide(NOW - 2 * HOUR, 100)
    assert rows.kinds(NOW - 2 * HOUR + 1700.0) == []  # it came within 900 seconds before: twice that
    (alert,) = rows.alerts(NOW - 2 * HOUR + 1900.0)
    assert (alert.kind, alert.since) == ("feedback stopped", NOW - 3 * HOUR)
    rows.answer(rows.decide(NOW - HOUR, 100), NOW - HOUR + 10.0, 0.5)
    assert rows.kinds() == []


def test_a_few_decisions_without_feedback_are_no_alert(rows: Rows) -> None:
    ids = rows.decide(NOW - 3 * HOUR, 100)
    rows.answer(ids[:10] + ids[-10:], NOW - 3 * HOUR + 60.0, 0.5)  # a fifth is answered
    rows.decide(NOW - 2 * HOUR, 90)  # so 18 of these would be
    assert rows.kinds() == []
    rows.decide(NOW - 2 * HOUR, 20)
    assert rows.kinds() == [("feedback stopped", None)]


def test_a_guardrail_that_always_rules_out_the_best_arm_is_an_alert(rows: Rows) -> None:
    ceiling = '[{"rule": "ceiling", "arms": [4]}]'
    rows.decide(NOW, 99, arm=3, best=4, rules=ceiling)
    assert rows.kinds() == []
    rows.decide(NOW, 1, arm=3, best=4, rules=ceiling)
    assert rows.kinds() == [("guardrail always binds", "ceiling")]
    rows.decide(NOW, 1, arm=3, best=3, rules=ceiling)  # it rules an arm out, but not the best one
    assert rows.kinds() == []


def test_an_arm_that_was_never_tried_is_named_unless_it_is_forbidden(rows: Rows) -> None:
    for arm in (0, 1, 3):
        rows.decide(NOW, 200, arm=arm, best=arm)
    alerts: list[Any] = rows.kinds()
    assert alerts == [("arm never tried", "10")]  # 12 is above the ceiling
    rows.decide(NOW, 1, arm=2)
    assert rows.kinds() == []
