"""What needs a person's attention, by the rows and the rollups: rewards outside their usual range, feedback
that has stopped, a guardrail that always binds, an arm that was never tried. Computed when it is asked for;
reads little.

Each test has a bound on false alarms, stated beside it (docs/sales.md).
"""

import json
from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from pricemesh.city.guardrails import Guardrails
from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.settings import Settings
from pricemesh.core.decision import DecisionCodec
from pricemesh.store.calendar import HOUR_SECONDS, Calendar, Per
from pricemesh.store.recent import (
    AnswerTimes,
    Choice,
    answer_times,
    count_unanswered,
    recent_choices,
)
from pricemesh.store.sales import SalesSums
from pricemesh.store.sales_reads import ALL_PRICES, read_arm_counts, read_sales

WEEK_SECONDS = 7 * 24 * HOUR_SECONDS
FORMER_WEEKS = 8
MIN_DECISIONS_OF_HOUR = 30
# Two-sided quantiles of Student's t at 1e-4, by degrees of freedom: one less than the former weeks. If the
# means of these hours are normal, independent and of equal variance, one test in 10,000 is a false alarm.
MAX_T = {3: 28.000, 4: 15.544, 5: 11.178, 6: 9.082, 7: 7.885}
MIN_RELATIVE_DEVIATION = 0.01  # of the mean: hours that are exactly alike make no alarm of a cent
EXPECTED_ANSWERS = 20.0  # that are missing: with independent answers, by chance with probability exp(-20)
PATIENCE_FACTOR, MIN_PATIENCE_SECONDS = 2.0, 600.0  # of the longest time that feedback took
MAX_COUNTED = 10_000
MIN_CHOICES = 100  # for a guardrail that always binds
DECISIONS_PER_ARM = 100  # of a city that has had time to try every arm


class Alert(NamedTuple):
    kind: str
    severity: str  # critical, warning or info
    about: str | None
    since: float | None  # Unix seconds
    text: str
    what_to_do: str


class Facts(NamedTuple):
    """What is read from the database, at one moment."""

    answers: AnswerTimes | None
    unanswered: int  # decisions that should have feedback by now, after the newest one that has
    hour: int | None  # the start of the newest hour that can be judged
    hours: dict[int, SalesSums]  # that hour and those of former weeks
    choices: list[Choice]
    arm_counts: dict[float, int]
    is_complete: bool  # the sums of sales


def read_facts(connection: Connection, settings: Settings, terms: int | None, now: float) -> Facts:
    answers = answer_times(connection)
    unanswered, hour, hours = 0, None, {}
    if answers is not None:
        patience_seconds = max(MIN_PATIENCE_SECONDS, PATIENCE_FACTOR * answers.longest_seconds)
        unanswered = count_unanswered(
            connection, answers.newest_decision, now - patience_seconds, MAX_COUNTED
        )
        hour = (
            Calendar("UTC", Per.HOUR).start_of(max(0.0, now - _delay_seconds(settings, answers)))
            - HOUR_SECONDS
        )
        hours = _read_hours(connection, hour)
    is_complete = read_sales(connection, "UTC", Per.HOUR, 0, 0, by_arm=False).is_complete
    choices = recent_choices(connection, terms)
    return Facts(answers, unanswered, hour, hours, choices, read_arm_counts(connection), is_complete)


def _delay_seconds(settings: Settings, answers: AnswerTimes) -> float:
    """Until an hour's figures are about complete. A default that is not 0 counts only when windows close."""
    return settings.feedback.window_seconds if settings.feedback.default_amount else answers.longest_seconds


def _read_hours(connection: Connection, newest: int) -> dict[int, SalesSums]:
    hours = {}
    for week in range(FORMER_WEEKS + 1):
        start = newest - week * WEEK_SECONDS
        if start < 0:
            break
        found = read_sales(connection, "UTC", Per.HOUR, start, start + HOUR_SECONDS, by_arm=False)
        hours[start] = found.groups.get((start, ALL_PRICES), SalesSums())
    return hours


def alerts_of_rows(settings: Settings, live: LiveLearner, facts: Facts) -> list[Alert]:
    alerts = [*_unusual_hours(settings, facts), *_stopped_feedback(facts)]
    alerts += _binding_guardrails(settings, live, facts.choices)
    if facts.is_complete:
        return alerts + _untried_arms(settings, facts.arm_counts)
    text = "older rows are still being counted: the figures of sales are incomplete"
    return [*alerts, Alert("sales incomplete", "info", None, None, text, "Wait: it takes minutes at most.")]


# Rewards and conversion


def _unusual_hours(settings: Settings, facts: Facts) -> list[Alert]:
    if facts.hour is None:
        return []
    alerts = []
    money = settings.display.currency or ""
    if (values := _means(facts, "reward")) and is_unusual(*values):
        text = _comparison("reward per decision", values[0], values[1], f"{{:.4g}} {money}".strip())
        alerts.append(_unusual("unusual reward", facts.hour, text))
    if settings.reward.is_purchase and (values := _means(facts, "bought")) and is_unusual(*values):
        text = _comparison("conversion", values[0], values[1], "{:.2%}")
        alerts.append(_unusual("unusual conversion", facts.hour, text))
    return alerts


def _means(facts: Facts, column: str) -> tuple[float, list[float]] | None:
    """Per decision: of the newest hour, and of the same hour of former weeks."""
    assert facts.hour is not None
    means = {}
    for start, sums in facts.hours.items():
        count = sums.decisions - sums.retracted
        if count >= MIN_DECISIONS_OF_HOUR:
            means[start] = float(getattr(sums, column)) / count
    newest = means.pop(facts.hour, None)
    return None if newest is None else (newest, list(means.values()))


def is_unusual(value: float, former: Sequence[float]) -> bool:
    """Whether a value lies outside the range that former ones predict: Student's t with their own
    deviation."""
    limit = MAX_T.get(len(former) - 1)
    if limit is None:
        return False
    mean = fmean(former)
    deviation = max(stdev(former), MIN_RELATIVE_DEVIATION * abs(mean))
    return abs(value - mean) > limit * deviation * sqrt(1 + 1 / len(former))


def _comparison(name: str, value: float, former: Sequence[float], form: str) -> str:
    usual = f"{form.format(min(former))} to {form.format(max(former))}"
    return f"{name} was {form.format(value)}; in the same hour of the last {len(former)} weeks {usual}"


def _unusual(kind: str, hour: int, text: str) -> Alert:
    advice = (
        "Look at the feedback of this hour (`/decisions?since=`): a till, a currency or an event. Wrong "
        "feedback can be retracted; `/admin/freeze` keeps new feedback from being learned meanwhile."
    )
    return Alert(kind, "warning", None, float(hour), text, advice)


# Feedback


def _stopped_feedback(facts: Facts) -> list[Alert]:
    """Decisions that should have been answered long ago are not, and their number is no accident."""
    answers = facts.answers
    if answers is None:
        return []
    usual_share = min(1.0, answers.size / answers.decision_span)
    if facts.unanswered * usual_share < EXPECTED_ANSWERS:
        return []
    text = (
        f"the newest {facts.unanswered} decisions of an age at which feedback had come so far (within "
        f"{answers.longest_seconds:.0f} s) have none"
    )
    advice = "Look at the system that sends feedback, and at its API key and errors in the log."
    return [Alert("feedback stopped", "warning", None, answers.newest_made_at, text, advice)]


# Choices


def _binding_guardrails(settings: Settings, live: LiveLearner, choices: Sequence[Choice]) -> list[Alert]:
    """A rule binds a decision if it rules out the arm that would be chosen without any rule."""
    if len(choices) < MIN_CHOICES:
        return []
    codec, sampling = DecisionCodec(settings.shape), live.learner.sampling
    optimism = 1.0 if sampling is None else sampling.optimism
    binding: set[str] | None = None
    for choice in choices:
        ruled_out: dict[str, list[int]] = {
            each["rule"]: each["arms"] for each in json.loads(choice.limited_by)
        }
        vectors = codec.unpack(choice.vectors)
        best = int(np.argmax(vectors.estimates + optimism * vectors.radii))
        rules = {rule for rule, arms in ruled_out.items() if best in arms}
        binding = rules if binding is None else binding & rules
        if not binding:
            return []
    return [_binding(rule, len(choices)) for rule in sorted(binding or ())]


def _binding(rule: str, count: int) -> Alert:
    where = "the pin" if rule == "pin" else f"guardrails.{rule}"
    return Alert(
        "guardrail always binds",
        "info" if rule == "pin" else "warning",
        rule,
        None,
        f"{where} has ruled out the best price in all of the last {count} decisions",
        f"Ask whether {where} is still meant: it sets the price, not the learner.",
    )


def _untried_arms(settings: Settings, counts: dict[float, int]) -> list[Alert]:
    total, prices = sum(counts.values()), settings.arms.prices
    if total < DECISIONS_PER_ARM * len(prices):
        return []
    rails = Guardrails(settings)
    untried = [price for arm, price in enumerate(prices) if not counts.get(price) and rails.allows(arm)]
    return [
        Alert(
            "arm never tried",
            "info",
            f"{price:g}",
            None,
            f"the price {price:g} was never given in {total} decisions",
            "Nothing, if the learner is right that it is worse; else pin it for a while to find out.",
        )
        for price in untried
    ]
