"""Decisions: all prices of a commit are scored at once, chosen within the guardrails and made into rows."""

from collections.abc import Iterable, Sequence
from itertools import repeat

import msgspec
import numpy as np

from pricemesh.city.clock import SteadyClock
from pricemesh.city.controls import Controls
from pricemesh.city.guardrails import Guardrails, LatestPrices
from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.settings import Settings
from pricemesh.core.arrays import Array
from pricemesh.core.choice import Randomness, decide
from pricemesh.core.decision import Decision, DecisionCodec, Occasion, make_decision
from pricemesh.core.thompson import city_seed, uniform_of
from pricemesh.core.ucb import Score
from pricemesh.errors import InvalidContext, PricemeshError
from pricemesh.runtime import Runtime
from pricemesh.store.commands import SaveDecisions
from pricemesh.store.database import Recall

Name = tuple[str | None, str | None]  # decision_id, subject
UNNAMED: Name = (None, None)
NO_IDS: frozenset[str] = frozenset()


class Quote(msgspec.Struct, frozen=True, gc=False):
    """Prices that a caller asks for, decided together."""

    names: Sequence[Name]
    contexts: bytes  # one after the other, float64

    @property
    def size(self) -> int:
        return len(self.names)


class Decider:
    def __init__(
        self,
        settings: Settings,
        live: LiveLearner,
        guardrails: Guardrails,
        controls: Controls,
        clock: SteadyClock,
        runtime: Runtime,
    ) -> None:
        self._live = live
        self._guardrails = guardrails
        self._controls = controls
        self._clock = clock
        self._latest_prices = LatestPrices()
        self._codec = DecisionCodec(settings.shape)
        self._space = settings.features.space
        self._prices = settings.arms.prices
        self._policy = settings.policy.name
        self._seed = city_seed(settings.city, settings.policy.seed)
        self._start_id = runtime.random_bytes(5).hex()
        self._id_count = 0
        self.limits_steps = guardrails.max_step is not None
        self._has_replicas = settings.database.replicas  # which price the same subjects

    # What decisions with a subject depend on, where the guardrails limit steps

    def unknown(self, waiting: Iterable[tuple[Quote, object]]) -> tuple[list[str], list[str]] | None:
        """The decision ids and subjects to look up in the database before these quotes can be decided: a
        decision that is asked for again is no step, and a step is measured from the subject's last price."""
        ids: set[str] = set()
        subjects: set[str] = set()
        for quote, _ in waiting:
            for id_, subject in quote.names:
                if subject is None:
                    continue
                if id_ is not None:
                    ids.add(id_)
                if subject not in self._latest_prices:
                    subjects.add(subject)
        return (list(ids), list(subjects)) if ids or subjects else None

    def forget(self, waiting: Iterable[tuple[Quote, object]]) -> None:
        """Prices that were not committed: the subjects' last prices are read again when they are needed."""
        for quote, _ in waiting:
            for _, subject in quote.names:
                if subject is not None:
                    self._latest_prices.forget(subject)

    def forget_subject(self, subject: str) -> None:
        self._latest_prices.forget(subject)

    # Deciding

    def decide_all(self, quotes: Sequence[Quote], recall: Recall) -> Sequence[SaveDecisions | PricemeshError]:
        """One score costs little less than many. An unusable context is a fault of its quote alone."""
        latest = self._latest(quotes, recall) if self.limits_steps else {}
        saves = self._decide_together(quotes, recall.decisions, latest)
        if self._has_replicas:
            return [self._with_steps(quote, save, recall) for quote, save in zip(quotes, saves, strict=True)]
        for subject, price in latest.items():
            self._latest_prices.put(subject, price)
        return saves

    def _with_steps(
        self, quote: Quote, save: SaveDecisions | PricemeshError, recall: Recall
    ) -> SaveDecisions | PricemeshError:
        """A save that is refused where another replica has priced the same subject since the recall."""
        if not self.limits_steps or isinstance(save, PricemeshError):
            return save
        prices = recall.latest_prices
        steps_from = {subject: prices.get(subject) for _, subject in quote.names if subject is not None}
        return SaveDecisions(save.rows, save.caller_ids, steps_from) if steps_from else save

    def _latest(self, quotes: Sequence[Quote], recall: Recall) -> dict[str, float]:
        """The last prices of the subjects in these quotes. Decisions change this copy, so that the memory's
        bound cannot push out a price that is still needed."""
        subjects = {subject for quote in quotes for _, subject in quote.names if subject is not None}
        memory = self._latest_prices
        return {subject: memory[subject] for subject in subjects if subject in memory} | recall.latest_prices

    def _decide_together(
        self, quotes: Sequence[Quote], known: dict[str, Decision], latest: dict[str, float]
    ) -> Sequence[SaveDecisions | PricemeshError]:
        try:
            contexts = self._space.rows(b"".join([quote.contexts for quote in quotes]))
            names = [name for quote in quotes for name in quote.names]
            rows = self._decide(contexts, names, known, latest)
        except InvalidContext as fault:
            if len(quotes) == 1:
                return [fault.with_traceback(None)]  # its frames refer to everyone in the group
            return [one for quote in quotes for one in self._decide_together([quote], known, latest)]
        saves, start = [], 0
        have_ids = names.count(UNNAMED) < len(names)  # any of them
        for quote in quotes:
            end = start + len(quote.names)
            ids = frozenset([id_ for id_, _ in quote.names if id_ is not None]) if have_ids else NO_IDS
            saves.append(SaveDecisions(rows[start:end], ids))
            start = end
        return saves

    def _decide(
        self, contexts: Array, names: Sequence[Name], known: dict[str, Decision], latest: dict[str, float]
    ) -> list[Decision]:
        """Contexts (m, d); `known` are decisions that exist already, by id; `latest` are the subjects' last
        prices, which these decisions change."""
        learner = self._live.learner
        score = learner.score(contexts[0] if len(names) == 1 else contexts)
        now = self._clock.read().now  # which notices a jump, however short
        ids, subjects = self._ids(names, now), [subject for _, subject in names]
        arms, rules, propensities = self._choose(score, ids, names, known, latest)
        origins = learner.attribution.origins
        chosen = np.array(arms)
        contributions = learner.contributions(contexts, chosen) if origins else ()
        vectors = self._codec.pack(contexts, score, contributions)
        occasion = Occasion(now, self._policy, self._live.version, ",".join(origins), self._live.terms)
        prices = map(self._prices.__getitem__, arms)
        chances = learner.chances(contexts, chosen)
        # Python's own floats: the store writes them as text.
        odds = propensities, repeat(None) if chances is None else chances.tolist()
        columns = zip(ids, subjects, arms, prices, rules, vectors, *odds, repeat(occasion), strict=False)
        rows = list(map(make_decision, columns))
        if known:
            rows = [known.get(row.id, row) for row in rows]
        return rows

    def _ids(self, names: Sequence[Name], now: float) -> list[str]:
        """The callers' own, or new ones: ascending in time, which keeps the index's pages together, and of
        this start alone."""
        prefix, first = f"{int(now * 1e3):011x}-{self._start_id}-", self._id_count + 1
        self._id_count += len(names)
        return [id_ or f"{prefix}{number:x}" for number, (id_, _) in enumerate(names, first)]

    def _choose(
        self,
        score: Score,
        ids: Sequence[str],
        names: Sequence[Name],
        known: dict[str, Decision],
        latest: dict[str, float],
    ) -> tuple[list[int], list[str], list[float]]:
        """The arms, which rules ruled out others for each, and the probability with which each was chosen."""
        guardrails, pinned_arm = self._guardrails, self._controls.pinned_arm
        single = len(names) == 1
        randomness = self._randomness(ids)
        rules = [guardrails.fixed.rules] * len(names)
        if pinned_arm is None and not (
            self.limits_steps and [subject for _, subject in names if subject is not None]
        ):
            choice = decide(score, randomness, guardrails.fixed.allowed)
            chosen, odds = choice.arm.tolist(), choice.propensity.tolist()
            return ([chosen], rules, [odds]) if single else (chosen, rules, odds)
        arms: list[int] = []
        propensities: list[float] = []
        # What exists already takes the place of its row in the end; its own arm may be one of another ladder.
        chosen_by_id = dict.fromkeys(known, (0, 1.0))
        for i, (decision_id, subject) in enumerate(names):
            if decision_id in chosen_by_id:
                arm, propensity = chosen_by_id[decision_id]
            else:
                last_price = None if subject is None else latest.get(subject)
                allowed, rules[i] = guardrails.limits(last_price, pinned_arm)
                at = ... if single else i
                one = Score(score.estimate[at], score.radius[at])
                luck = randomness and Randomness(randomness.sampling, randomness.uniform[at])
                choice = decide(one, luck, allowed)
                arm, propensity = int(choice.arm), float(choice.propensity)
                if decision_id is not None:
                    chosen_by_id[decision_id] = arm, propensity
                if subject is not None:
                    latest[subject] = self._prices[arm]
            arms.append(arm)
            propensities.append(propensity)
        return arms, rules, propensities

    def _randomness(self, ids: Sequence[str]) -> Randomness | None:
        """A draw depends on the city's seed and the decision's id alone, so that it can be repeated."""
        sampling = self._live.learner.sampling
        if sampling is None:
            return None
        numbers = [uniform_of(self._seed, id_) for id_ in ids]
        return Randomness(sampling, np.array(numbers[0] if len(numbers) == 1 else numbers))
