"""Decisions: all prices of a commit are scored at once, chosen within the guardrails and made into rows."""

import secrets
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from pricemesh.city.guardrails import Guardrails
from pricemesh.city.settings import Settings
from pricemesh.core.arrays import Array
from pricemesh.core.policies import Learner
from pricemesh.core.ucb import Score, choose
from pricemesh.errors import InvalidContext, PricemeshError
from pricemesh.store.commands import Decision, Occasion, SaveDecisions

Name = tuple[str | None, str | None]  # decision_id, subject
UNNAMED: Name = (None, None)
NOBODY: frozenset[str] = frozenset()


class Quote(NamedTuple):
    """Prices that are asked for: decided when their turn to be written has come."""

    names: Sequence[Name]
    contexts: bytes  # one after the other, float64

    @property
    def size(self) -> int:
        return len(self.names)


class Standing(NamedTuple):
    """What a decision depends on beside its context and the learner."""

    version: int
    pinned_arm: int | None


class Decider:
    def __init__(
        self, settings: Settings, learner: Learner, rails: Guardrails, clock: Callable[[], float]
    ) -> None:
        self._learner = learner
        self._rails = rails
        self._clock = clock
        self._space = settings.features.space
        self._prices = settings.arms.prices
        self._policy = settings.policy.name
        self._start_id = secrets.token_hex(5)
        self._given_out = 0

    def decide_all(
        self, quotes: Sequence[Quote], standing: Standing
    ) -> Sequence[SaveDecisions | PricemeshError]:
        """One score costs little less than many. A context that cannot be used is a fault of its quote."""
        try:
            contexts = self.contexts(quotes)
            names = [name for quote in quotes for name in quote.names]
            rows = self._decide(contexts, names, standing)
        except InvalidContext as fault:
            if len(quotes) == 1:
                return [fault]
            return [one for quote in quotes for one in self.decide_all([quote], standing)]
        parts, at = [], 0
        for quote in quotes:
            ids = [id_ for id_, _ in quote.names if id_ is not None]
            parts.append(SaveDecisions(rows[at : at + quote.size], frozenset(ids) if ids else NOBODY))
            at += quote.size
        return parts

    def contexts(self, quotes: Sequence[Quote]) -> Array:
        """All of them, (m, d), each within its bounds."""
        return self._space.rows(b"".join([quote.contexts for quote in quotes]))

    def _decide(self, contexts: Array, names: Sequence[Name], standing: Standing) -> list[Decision]:
        """Contexts (m, d)."""
        score = self._learner.score(contexts[0] if len(names) == 1 else contexts)
        arms, limits = self._choose(score, names, standing.pinned_arm)
        parts = [contexts, *map(np.atleast_2d, score)]
        told_by = self._learner.attribution.origins
        if told_by:
            parts += self._learner.contributions(contexts, np.array(arms))
        vectors = np.concatenate(parts, axis=1)
        as_bytes = vectors.view(f"V{vectors.shape[1] * vectors.itemsize}")[:, 0].tolist()
        now = self._clock()
        occasion = Occasion(now, self._policy, standing.version, ",".join(told_by))
        prices = map(self._prices.__getitem__, arms)
        ids, subjects = self._ids(names, now), [subject for _, subject in names]
        columns = zip(ids, subjects, arms, prices, limits, as_bytes, repeat(occasion), strict=False)
        rows = list(map(Decision._make, columns))
        for i, (id_, subject) in enumerate(names):
            if id_ is None:
                continue
            taken = self._rails.taken(id_)
            if taken is not None:
                rows[i] = taken
            elif subject is not None:
                self._rails.take(rows[i])
        return rows

    def _ids(self, names: Sequence[Name], now: float) -> list[str]:
        """The callers' own, or new ones: ascending in time, which keeps the index's pages together, and of
        this start alone."""
        prefix, first = f"{int(now * 1e3):011x}-{self._start_id}-", self._given_out + 1
        self._given_out += len(names)
        return [id_ or f"{prefix}{number:x}" for number, (id_, _) in enumerate(names, first)]

    def _choose(
        self, score: Score, names: Sequence[Name], pinned_arm: int | None
    ) -> tuple[list[int], list[str]]:
        """The arms, and what was ruled out for each."""
        rails, single = self._rails, len(names) == 1
        limits = [rails.fixed.said] * len(names)
        if pinned_arm is None and not [subject for _, subject in names if subject is not None]:
            chosen = choose(score, rails.fixed.allowed).tolist()
            return ([chosen] if single else chosen), limits
        arms = []
        for i, (decision_id, subject) in enumerate(names):
            taken = None if decision_id is None else rails.taken(decision_id)
            if taken is not None:
                arms.append(taken.arm)
                continue
            allowed, limits[i] = rails.limits(subject, pinned_arm)
            one = score if single else Score(score.estimate[i], score.radius[i])
            arms.append(int(choose(one, allowed)))
            if subject is not None:
                rails.stepped(subject, self._prices[arms[-1]])
        return arms, limits
