"""Decisions that wait for feedback: they narrow the radius before they can move the estimate.

V = F + sum x x' over a city's own unanswered decisions on an arm, where F is the Gram matrix of the arm's
fit. The radius uses V^-1, the estimate F^-1. Knows neither rewards nor peers.
"""

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from math import sqrt
from typing import Any, Literal

import numpy as np

from pricemesh.core.arrays import Array, Ints, one_of
from pricemesh.core.attribution import by_arm
from pricemesh.core.ridge import (
    MAX_LEVERAGE,
    REFRESH_INTERVAL_UPDATES,
    Index,
    Ridge,
    inverse_of_positive_definite,
    is_one_city,
    outer,
)

# A downdate divides by 1 - x'V^-1 x. Below this the inverse is recomputed from V instead.
MIN_DOWNDATE = 0.01
MAX_UNADDED_GROUPS = 64


@dataclass(frozen=True, kw_only=True)
class PendingParameters:
    """Whether decisions count before their feedback comes."""

    pending: Literal["on", "off"] = "off"

    def __post_init__(self) -> None:
        one_of("pending", self.pending, ("on", "off"))


@dataclass
class Pending:
    """The decisions of all arms that wait, of one city or of a batch; arrays start with (..., K)."""

    sums: Array  # sum x x' (..., K, d, d), apart from the rows in `_unadded`
    count: Array  # (..., K)
    inverse: Array = dataclass_field(init=False)  # V^-1 (..., K, d, d)
    updates: Array = dataclass_field(init=False)  # of the inverse since it was computed from V (..., K)
    # Contexts and arms of one city: adding up many rows at once costs much less.
    _unadded: list[tuple[Array, Ints]] = dataclass_field(init=False, default_factory=list)

    @classmethod
    def none_of(cls, fit: Ridge) -> "Pending":
        """No decision waits."""
        pending = cls(np.zeros_like(fit.gram), np.zeros_like(fit.count))
        pending.refresh(fit)
        return pending

    @property
    def gram(self) -> Array:
        """sum x x' of all decisions that wait, (..., K, d, d)."""
        if self._unadded:
            x, arms = (np.concatenate(parts) for parts in zip(*self._unadded, strict=True))
            self._unadded = []
            for arm, rows in by_arm(arms):
                several = x[rows]
                self.sums[arm] += several.T.dot(several)
        return self.sums

    def refresh(self, fit: Ridge) -> None:
        """Compute V^-1 of every arm, after a change of the fit other than by `learn`."""
        waits = self.count > 0
        self.inverse = fit.inverse.copy()
        if waits.any():
            self.inverse[waits] = inverse_of_positive_definite(fit.gram[waits] + self.gram[waits])
        self.updates = np.zeros_like(self.count)

    # Decisions

    def pend(self, cities: Index, x: Array, arms: Any, fit: Ridge) -> None:
        """As `Learner.pend`; `cities` are the indices of a batch, or ()."""
        if cities:
            self.add((*cities, arms), x, fit)
        else:
            self.add_rows(np.atleast_2d(x), np.atleast_1d(arms), fit)

    def release(self, cities: Index, x: Array, arms: Any, fit: Ridge) -> None:
        """As `Learner.release`."""
        if cities:
            self.remove((*cities, arms), x, fit)
        else:
            self.remove_rows(np.atleast_2d(x), np.atleast_1d(arms), fit)

    def add(self, at: Index, x: Array, fit: Ridge) -> None:
        """One decision per city, at the arm that `at` selects; x (..., d)."""
        self.gram[at] += outer(x)
        self.count[at] += 1.0
        self.observe(at, x, fit)

    def remove(self, at: Index, x: Array, fit: Ridge) -> None:
        """One decision per city that will never be answered."""
        self._subtract(at, outer(x))
        inverse = self.inverse[at]
        gain = np.matvec(inverse, x)
        rest = 1.0 - np.vecdot(x, gain)
        inverse = inverse + outer(gain / np.sqrt(np.maximum(rest, MIN_DOWNDATE))[..., None])
        self._store(at, inverse, ~(rest >= MIN_DOWNDATE), fit)

    def add_rows(self, x: Array, arms: Ints, fit: Ridge) -> None:
        """Several decisions of one city, x (m, d) and arms (m,): one update for all arms."""
        if len(x) == 1:
            self.add((int(arms[0]),), x[0], fit)
            return
        rows: dict[int, list[int]] = {}
        for row, arm in enumerate(arms.tolist()):
            rows.setdefault(arm, []).append(row)
        most = x.shape[1] // 2  # with more rows than this, V is inverted as fast
        self._unadded.append((x, arms))
        if len(self._unadded) >= MAX_UNADDED_GROUPS:
            _ = self.gram
        for arm in [arm for arm, own in rows.items() if len(own) > most]:
            self.count[arm] += len(rows.pop(arm))
            self._recompute(arm, fit)
        if rows:
            self._observe_rows(x, rows, fit)

    def remove_rows(self, x: Array, arms: Ints, fit: Ridge) -> None:
        """Several decisions of one city that will never be answered."""
        for arm, rows in by_arm(arms):
            self._subtract((arm,), x[rows].T @ x[rows], len(rows))
            self._recompute(arm, fit)

    # Feedback

    def learn(self, at: Index, x: Array, square: Array, fit: Ridge, *, waited: bool) -> None:
        """The fit has learned feedback to x, so that F has gained x x'. If the decision waited, V stays as it
        was."""
        if waited:
            self._subtract(at, square)
        else:
            self.observe(at, x, fit)

    def observe(self, at: Index, x: Array, fit: Ridge) -> None:
        """V gains x x': by a decision that begins to wait, or by feedback to one that did not."""
        if is_one_city(at):
            self._observe_one_city(at, x, fit)
            return
        inverse = self.inverse[at]
        gain = np.matvec(inverse, x)
        leverage = np.vecdot(x, gain)
        inverse = inverse - outer(gain / np.sqrt(1.0 + np.maximum(leverage, 0.0))[..., None])
        self._store(at, inverse, ~((leverage >= 0.0) & (leverage <= MAX_LEVERAGE)), fit)

    def _observe_one_city(self, at: Index, x: Array, fit: Ridge) -> None:
        """In place and with plain products, as `Ridge` does for one city."""
        inverse: Array = self.inverse[at]
        gain = inverse.dot(x)
        leverage = float(x.dot(gain))
        self.updates[at] += 1.0
        if self.updates[at] >= REFRESH_INTERVAL_UPDATES or not 0.0 <= leverage <= MAX_LEVERAGE:
            self._recompute(at[0], fit)
        else:
            gain /= sqrt(1.0 + leverage)
            inverse -= outer(gain)

    def _observe_rows(self, x: Array, rows: dict[int, list[int]], fit: Ridge) -> None:
        """V^-1 - Y'(I + Y X')^-1 Y with Y = X V^-1 (Woodbury), where X are the rows of an arm. All arms have
        as many as the one with most: rows of zeros change nothing."""
        arms, counts = np.array(list(rows)), [len(own) for own in rows.values()]
        padded = np.zeros((len(arms), max(counts), x.shape[1]))
        places = [place for place, count in enumerate(counts) for _ in range(count)]
        slots = [slot for count in counts for slot in range(count)]
        padded[places, slots] = x[[row for own in rows.values() for row in own]]
        across = padded.swapaxes(1, 2)
        self.count[arms] += counts
        self.updates[arms] += counts
        inverse = self.inverse[arms]
        y = np.matmul(padded, inverse)
        inner = np.matmul(y, across)
        leverages = inner.diagonal(0, 1, 2)
        is_inexact = ~((leverages.min(axis=1) >= 0.0) & (leverages.max(axis=1) <= MAX_LEVERAGE))
        inner += np.eye(inner.shape[-1])
        inverse -= np.matmul(y.swapaxes(1, 2), np.matmul(np.linalg.inv(inner), y))
        self.inverse[arms] = inverse
        is_inexact |= self.updates[arms] >= REFRESH_INTERVAL_UPDATES
        if np.count_nonzero(is_inexact):
            due = arms[is_inexact]
            self.inverse[due] = inverse_of_positive_definite(fit.gram[due] + self.gram[due])
            self.updates[due] = 0.0

    def _store(self, at: Index, inverse: Array, is_inexact: Any, fit: Ridge) -> None:
        """Store updated inverses, except those that must be computed from V."""
        self.updates[at] += 1.0
        due = is_inexact | (self.updates[at] >= REFRESH_INTERVAL_UPDATES)
        if np.count_nonzero(due):
            inverse[due] = inverse_of_positive_definite((fit.gram[at] + self.gram[at])[due])
            self.updates[at] = np.where(due, 0.0, self.updates[at])
        self.inverse[at] = inverse

    def _recompute(self, arm: Any, fit: Ridge) -> None:
        self.inverse[arm] = inverse_of_positive_definite(fit.gram[arm] + self.gram[arm])
        self.updates[arm] = 0.0

    def _subtract(self, at: Index, square: Array, count: int = 1) -> None:
        """Where nothing waits any more, the sum is exactly zero: rounding does not add up."""
        left = self.count[at] - count
        self.count[at] = left
        if is_one_city(at):
            if left > 0:
                gram = self.sums[at]
                gram -= square
            else:
                self.gram[at] = 0.0
            return
        self.gram[at] = np.where((left > 0)[..., None, None], self.gram[at] - square, 0.0)

    # State

    def state(self) -> dict[str, Array]:
        return {"pending": self.gram, "pending_count": self.count}

    def restore(self, state: dict[str, Array], fit: Ridge) -> None:
        self.sums, self.count = state["pending"], state["pending_count"]
        self._unadded = []
        self.refresh(fit)
