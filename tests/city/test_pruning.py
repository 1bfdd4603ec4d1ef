"""Old rows leave, what they taught stays: checked against learners made from all rows by brute force."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from pricemesh.city.pricing import Pricing
from pricemesh.city.pruning import Pruning
from pricemesh.city.settings import Settings
from pricemesh.errors import DatabaseInUse, InvalidParameter
from pricemesh.runtime import Runtime
from pricemesh.store.tables import decisions, feedback, retracted
from tests.city.old_rows import (
    DAY,
    START,
    Tables,
    assert_equal,
    brute_force,
    clock_at,
    prune,
    started,
    write_days,
    years_settings,
)
from tests.city.test_reshaping import reshape
from tests.running import RunningCity

LONGER_LADDER = [8.0, 9.0, 9.5, 10.0, 11.0, 12.0]
POLICIES: list[dict[str, Any]] = [
    {"name": "netpool"},
    {"name": "netpool", "ridge": 0.5, "alpha": 0.3, "pending": "off"},
    {"name": "disjoint", "pending": "on"},
    {"name": "netlinucb", "split": "block"},
    {"name": "netsgducb", "accumulator": "ema"},
    {"name": "demand"},
]


def policy_id(policy: dict[str, Any]) -> str:
    return "-".join(str(value) for value in policy.values())


@pytest.fixture(params=POLICIES, ids=policy_id)
def settings(request: pytest.FixtureRequest, database_url: str) -> Settings:
    return years_settings(database_url, request.param)


@pytest.fixture
def netpool(database_url: str) -> Settings:
    return years_settings(database_url, {"name": "netpool"})


def test_the_learner_after_a_prune_is_the_one_before_it(settings: Settings) -> None:
    write_days(settings, range(40))
    tables = Tables(settings)
    tables.retract([3, 10, 150])
    expected = brute_force(settings, tables.rows(), tables.settled())
    before = started(settings)
    assert_equal(settings, before.learner, expected)

    plan = prune(settings, at_day=40, older_than_days=20)
    assert plan.learned > 60
    assert plan.retracted == 2
    assert plan.unlearned > 0
    assert plan.unanswered > 0
    assert len(tables.rows()) == 40 * 8 - plan.decisions
    after = started(settings)
    assert (after.version, after.counts.retracted) == (before.version, 3)
    assert after.arms() == before.arms()
    assert_equal(settings, after.learner, expected)

    tables.forget_snapshot()
    assert_equal(settings, started(settings).learner, expected)
    tables.rewrite_past()
    assert_equal(settings, started(settings).learner, expected)
    tables.close()


def test_pruning_again_builds_on_the_base(settings: Settings) -> None:
    write_days(settings, range(30))
    tables = Tables(settings)
    all_rows = {row.number: row for row in tables.rows()}
    versions = []
    for last_day in (30, 45, 60):
        prune(settings, at_day=last_day, older_than_days=15)
        versions.append(tables.base_version() or 0)
        write_days(settings, range(last_day, last_day + 15))
        all_rows |= {row.number: row for row in tables.rows()}
        tables.forget_snapshot()
        expected = brute_force(settings, list(all_rows.values()), tables.settled())
        assert_equal(settings, started(settings).learner, expected)
    assert 0 < versions[0] < versions[1] < versions[2]
    lowest = tables.execute(sa.select(sa.func.min(feedback.c.version)))[0][0]
    assert lowest == versions[2] + 1
    tables.close()


def test_a_retraction_after_a_prune_reaches_the_rows_that_are_left(netpool: Settings) -> None:
    write_days(netpool, range(40))
    tables = Tables(netpool)
    rows = tables.rows()
    prune(netpool, at_day=40, older_than_days=20)
    newest = tables.numbers()[2]
    tables.retract([newest, newest - 1])
    expected = brute_force(
        netpool,
        [row._replace(is_retracted=row.version in (newest, newest - 1)) for row in rows],
        tables.settled(),
    )
    assert_equal(netpool, started(netpool).learner, expected)
    tables.close()


def test_numbers_and_versions_are_never_used_twice(netpool: Settings) -> None:
    write_days(netpool, range(20))
    tables = Tables(netpool)
    before = tables.numbers()
    plan = prune(netpool, at_day=4000, older_than_days=365)  # everything is old
    assert plan.decisions > 100
    assert tables.numbers() == before
    write_days(netpool, range(4000, 4002))
    numbers = [row[0] for row in tables.execute(sa.select(decisions.c.number))]
    assert sorted(numbers)[-16:] == list(range(before[0] + 1, before[0] + 17))
    versions = [row[0] for row in tables.execute(sa.select(feedback.c.version)) if row[0] is not None]
    assert len([version for version in versions if version > before[2]]) == tables.numbers()[2] - before[2]
    assert started(netpool).version == tables.numbers()[2]
    tables.close()


def test_the_feedback_of_the_newest_decision_stays_with_it(netpool: Settings) -> None:
    """Without it the decision would wait for feedback again."""
    write_days(netpool, range(20))
    tables = Tables(netpool)
    newest = next(row.number for row in tables.rows() if row.version == 60)
    tables.execute(feedback.delete().where(feedback.c.decision > newest))
    tables.execute(decisions.delete().where(decisions.c.number > newest))
    assert tables.numbers()[2] > 61  # older decisions got theirs later
    prune(netpool, at_day=4000, older_than_days=365)
    versions = sorted(row.version for row in tables.rows() if row.version is not None)
    assert versions[0] == 60
    assert tables.base_version() in range(30, 60)  # nothing that is in the base stays in the rows
    tables.close()


def test_a_decision_stays_while_its_window_is_open(netpool: Settings) -> None:
    write_days(netpool, range(20))
    tables = Tables(netpool)
    settled = tables.settled()
    waiting = {row.number for row in tables.rows() if row.amount is None and row.number > settled}
    assert len(waiting) > 3
    plan = prune(netpool, at_day=4000, older_than_days=365)  # the city has closed no window since day 15
    assert plan.old_left >= len(waiting)
    assert waiting <= {row.number for row in tables.rows()}
    with pytest.raises(InvalidParameter, match=r"feedback may come for 432000 s"):
        Pruning(netpool, Runtime(), 4 * DAY)
    tables.close()


def test_feedback_that_was_learned_after_a_younger_decisions_stays(netpool: Settings) -> None:
    """A base holds the first versions, without a gap."""
    write_days(netpool, range(30))
    tables = Tables(netpool)
    prune(netpool, at_day=30, older_than_days=15)
    cutoff = START + 15 * DAY
    made = tables.execute(
        sa.select(feedback.c.version, decisions.c.made_at)
        .join_from(feedback, decisions, feedback.c.decision == decisions.c.number)
        .where(feedback.c.version.is_not(None))
        .order_by(feedback.c.version)
    )
    assert made[0][1] >= cutoff  # the first that stays is young
    assert any(at < cutoff for _, at in made)  # and keeps older ones after it
    tables.close()


def test_a_decision_from_the_future_does_not_keep_old_rows_for_ever(netpool: Settings) -> None:
    write_days(netpool, range(30))
    tables = Tables(netpool)
    rows = tables.rows()
    wrong = next(row.number for row in rows if row.version == 5)
    tables.execute(decisions.update().where(decisions.c.number == wrong).values(made_at=START + 9000 * DAY))
    plan = prune(netpool, at_day=30, older_than_days=15)
    assert plan.version > 5
    assert_equal(netpool, started(netpool).learner, brute_force(netpool, rows, tables.settled()))
    tables.close()


def test_a_snapshot_that_has_yet_to_count_pruned_rows_is_replaced(netpool: Settings) -> None:
    write_days(netpool, range(10))
    tables = Tables(netpool)
    tables.save_snapshot(started(netpool))
    write_days(netpool, range(10, 40))
    expected = brute_force(netpool, tables.rows(), tables.settled())
    prune(netpool, at_day=40, older_than_days=15)
    assert_equal(netpool, started(netpool).learner, expected)
    tables.close()


def test_what_peers_have_mixed_into_the_learner_stays(database_url: str) -> None:
    """It is in the snapshot alone."""
    settings = years_settings(database_url, {"name": "netsgducb"})
    write_days(settings, range(30))
    tables = Tables(settings)
    live = started(settings)
    live.learner.own.theta += 0.25  # type: ignore[attr-defined]  # as an absorb changes it
    live.mixes = 1
    tables.save_snapshot(live)
    prune(settings, at_day=30, older_than_days=15)
    after = started(settings)
    assert after.mixes == 1
    assert_equal(settings, after.learner, live.learner)
    tables.close()


def test_a_prune_without_feedback_to_learn_makes_no_base(netpool: Settings) -> None:
    write_days(netpool, range(4))
    tables = Tables(netpool)
    tables.execute(feedback.delete())
    tables.execute(decisions.update().values(made_at=START))
    tables.execute(sa.text(f"UPDATE city SET settled_through = {tables.numbers()[0]}"))
    tables.forget_snapshot()
    plan = prune(netpool, at_day=30, older_than_days=15)
    assert plan.decisions == 4 * 8 - 1
    assert tables.base_version() is None
    assert prune(netpool, at_day=30, older_than_days=15).rows == 0
    tables.close()


def test_a_plan_counts_what_leaves_while_the_city_serves(database_url: str) -> None:
    no_window_closes = {"steady_seconds": 3600.0}
    netpool = years_settings(database_url, {"name": "netpool"}, clock=no_window_closes)
    write_days(netpool, range(30))
    city = RunningCity(netpool)
    impatient = years_settings(database_url, {"name": "netpool"}, database={"lock_wait_seconds": 0.0})
    pruning = Pruning(impatient, clock_at(30), 15 * DAY)
    plan = pruning.plan()
    with pytest.raises(DatabaseInUse, match="another process"):
        pruning.carry_out()
    city.stop()
    tables = Tables(netpool)
    count = len(tables.rows())
    again = Pruning(netpool, clock_at(30), 15 * DAY)
    assert again.carry_out() == plan
    again.close()
    assert len(tables.rows()) == count - plan.decisions
    assert plan.first_made_at == START
    assert not tables.execute(
        sa.select(retracted.c.feedback).where(retracted.c.feedback.not_in(sa.select(feedback.c.number)))
    )
    tables.close()


def test_pruned_decisions_are_unknown_and_totals_go_on(netpool: Settings) -> None:
    write_days(netpool, range(30))
    tables = Tables(netpool)
    decision_count, feedback_count, _ = tables.numbers()
    plan = prune(netpool, at_day=30, older_than_days=15)
    city = RunningCity(netpool)
    state = city.state()
    assert (state["decisions"], state["feedback"]) == (decision_count, feedback_count)
    assert city.http.get("/decisions/0-0").status_code == 404
    assert city.feedback("0-0", 1.0).status_code == 404
    page: dict[str, Any] = {"next_before": decision_count + 1}
    ids: list[str] = []
    while page["next_before"] is not None:
        query = {"limit": 100, "before": page["next_before"]}
        page = city.http.get("/decisions", params=query).json()
        ids += [each["decision_id"] for each in page["decisions"]]
    assert len(ids) == len(set(ids)) == decision_count - plan.decisions
    assert city.feedback(city.price()["decision_id"], 1.0).json()["version"] == state["version"] + 1
    city.stop()
    tables.close()


def test_a_city_that_serves_learns_again_from_the_base(netpool: Settings) -> None:
    write_days(netpool, range(30))
    prune(netpool, at_day=30, older_than_days=15)

    async def relearn() -> None:
        pricing = Pricing(netpool, Runtime())
        await pricing.start()
        before = pricing.learner
        await pricing.relearner.relearn()
        assert pricing.learner is not before
        assert_equal(netpool, pricing.learner, before)
        await pricing.stop()

    asyncio.run(relearn())


def test_rows_of_an_older_ladder_are_pruned_in_the_present_terms(netpool: Settings) -> None:
    write_days(netpool, range(30))
    longer = years_settings(netpool.database.url, {"name": "netpool"}, arms={"prices": LONGER_LADDER})
    reshape(longer, {}, {})
    before = started(longer)
    plan = prune(longer, at_day=30, older_than_days=15)
    assert plan.learned > 60
    tables = Tables(longer)
    tables.forget_snapshot()
    after = started(longer)
    assert_equal(longer, after.learner, before.learner)
    assert after.arms() == before.arms()

    first = years_settings(netpool.database.url, {"name": "netpool"})  # the first ladder, again
    assert reshape(first, {}, {}).base_lessons == plan.learned
    assert tables.base_version() is None
    assert_equal(first, started(first).learner, brute_force(first, tables.rows(), tables.settled()))
    assert started(first).version == before.version
    tables.close()
