"""Rejection replay: a policy is judged on the survey's answers themselves, without any model of demand.

The answers come in an order drawn from the seed. Where a city chooses the fare level that the survey showed,
the answer counts and is learned; otherwise it is skipped. Over its 27 situations the survey showed each level
equally often, so the answers that count are as those to a policy that sets the fare itself (Li, Chu,
Langford, Wang: Unbiased offline evaluation of contextual-bandit-based news article recommendation, 2011)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.choice import Randomness, decide
from pricemesh.core.ladder import Ladder
from pricemesh.core.policies import Learner, Policy, Shape
from pricemesh.core.summary import Summary
from pricemesh.errors import InvalidParameter
from pricemesh.lab.swissmetro.answers import CANTONS, LEVELS, LOCAL, SHARED, Answers, load
from pricemesh.lab.worlds import generator

PRICES = np.array(LEVELS)
TWO_SIDED_95 = 1.96


@dataclass(frozen=True)
class Replayed:
    """What one policy earned. `revenue` is the mean over seeds of the mean over answers that counted, in
    units of the rail fare; `error` is its standard error by respondents, because one respondent's answers
    are alike. The seeds order the same answers anew, so more of them do not make it smaller."""

    label: str
    revenue: float
    error: float
    matched: float  # answers that counted, mean over seeds
    answers: int

    @property
    def interval(self) -> tuple[float, float]:
        """With 95 % confidence."""
        return self.revenue - TWO_SIDED_95 * self.error, self.revenue + TWO_SIDED_95 * self.error


def of_cities(cities: int = len(CANTONS)) -> Answers:
    """The answers of the cantons with most of them."""
    if not 1 <= cities <= len(CANTONS):
        raise InvalidParameter(f"there are answers of 1 to {len(CANTONS)} cities, not {cities}")
    answers = load()
    rows = answers.city < cities
    return Answers(**{name: values[rows] for name, values in vars(answers).items()})


def replay(
    answers: Answers,
    label: str,
    policy: Policy,
    seeds: Sequence[int],
    gossip_every: int = 5,
    on_seed: Callable[[], None] = lambda: None,
) -> Replayed:
    """Judge a policy. The cities exchange summaries after every `gossip_every` answers per city, counted or
    not. `on_seed` is called after each seed."""
    if gossip_every < 1 or not seeds or min(seeds) < 0:
        raise InvalidParameter("a replay has one seed or more, none below zero; gossip_every is 1 or more")
    counted = []
    for seed in seeds:
        counted.append(replay_once(answers, policy, seed, gossip_every))
        on_seed()
    return _judged(answers, label, counted)


def baselines(answers: Answers) -> list[Replayed]:
    """Uniform prices, which are those of the survey, and each level for all."""
    everyone = np.ones(len(answers.level), dtype=bool)
    judged = [_judged(answers, "uniform prices", [everyone])]
    for level, price in enumerate(LEVELS):
        judged.append(_judged(answers, f"always {price:g}", [answers.level == level]))
    return judged


def replay_once(answers: Answers, policy: Policy, seed: int, gossip_every: int) -> NDArray[np.bool_]:
    """Which answers counted, (R,)."""
    cities = int(answers.city.max()) + 1
    ladder = Ladder(PRICES, float(PRICES[0]), float(PRICES[-1]))
    shape = Shape(len(PRICES), len(SHARED), len(LOCAL), ladder=ladder)
    learners = [policy.learner(shape) for _ in range(cities)]
    order = generator(seed, "replay").permutation(len(answers.level))
    luck = generator(seed, "choice")
    counted = np.zeros(len(answers.level), dtype=bool)
    for index, row in enumerate(order.tolist()):
        if index % (gossip_every * cities) == 0:
            _gossip(learners)
        learner, x = learners[answers.city[row]], answers.context[row]
        arm = _choose(learner, x, luck)
        if arm == answers.level[row]:
            counted[row] = True
            _learn(learner, x, arm, float(answers.bought[row]))
    return counted


def _choose(learner: Learner, x: Array, luck: Generator) -> int:
    sampling = learner.sampling
    randomness = None if sampling is None else Randomness(sampling, np.array(luck.random()))
    return int(decide(learner.score(x), randomness).arm)


def _learn(learner: Learner, x: Array, arm: int, bought: float) -> None:
    """A learner of sales learns what was bought, the others what was earned."""
    chances = learner.chances(x[None], np.array([arm]))
    outcome = bought if learner.learns_sales else bought * LEVELS[arm]
    learner.learn(x, arm, outcome, None if chances is None else float(chances[0]))


def _gossip(learners: Sequence[Learner]) -> None:
    """Every city absorbs the newest summary of every other."""
    if not learners[0].fields:
        return
    names = [f"city{i}" for i in range(len(learners))]
    summaries = {
        name: Summary.of(name, 0, 0, bytes(16), learner.numbers())
        for name, learner in zip(names, learners, strict=True)
    }
    for name, learner in zip(names, learners, strict=True):
        learner.absorb_summaries(name, summaries)


def _judged(answers: Answers, label: str, counted: Sequence[NDArray[np.bool_]]) -> Replayed:
    revenue = PRICES[answers.level] * answers.bought
    means = [mean_by_respondent(revenue[rows], answers.respondent[rows]) for rows in counted]
    return Replayed(
        label,
        float(np.mean([mean for mean, _ in means])),
        float(np.mean([error for _, error in means])),
        float(np.mean([rows.sum() for rows in counted])),
        len(revenue),
    )


def mean_by_respondent(values: Array, respondent: Ints) -> tuple[float, float]:
    """The mean of the values, and its standard error where those of one respondent may depend on each other:
    sqrt(g / (g - 1) sum over respondents of (their residuals' sum)^2) / n."""
    if not len(values):
        return float("nan"), float("nan")
    mean = float(values.mean())
    _, group = np.unique(respondent, return_inverse=True)
    sums = np.bincount(group, weights=values - mean)
    spread = float(sums @ sums) * len(sums) / max(1, len(sums) - 1)
    return mean, float(np.sqrt(spread)) / len(values)
