"""Which arms may be chosen: floor and ceiling, an operator's pin, the largest step of a subject's price."""

import json
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from pricemesh.city.settings import Settings

MAX_SUBJECTS = 10_000


class Limits(NamedTuple):
    allowed: np.ndarray | None  # by arm; None where nothing is ruled out
    rules: str  # which rule ruled out which arms, as JSON


class Guardrails:
    def __init__(self, settings: Settings) -> None:
        rails = settings.guardrails
        self._prices = np.array(settings.arms.prices)
        self.max_step = rails.max_step
        below = self._prices < (-np.inf if rails.floor is None else rails.floor)
        above = self._prices > (np.inf if rails.ceiling is None else rails.ceiling)
        rules = _as_json({"floor": below, "ceiling": above})
        self.fixed = Limits(None if rules == "[]" else ~(below | above), rules)

    def allows(self, arm: int) -> bool:
        """Whether floor and ceiling do."""
        return self.fixed.allowed is None or bool(self.fixed.allowed[arm])

    def limits(self, last_price: float | None, pinned_arm: int | None) -> Limits:
        """Floor and ceiling, narrowed by a pin, or by the largest step from the subject's last price."""
        fixed = self.fixed
        within = np.ones(len(self._prices), dtype=bool) if fixed.allowed is None else fixed.allowed
        if pinned_arm is not None:
            pinned = np.arange(len(self._prices)) == pinned_arm
            if not (within & pinned).any():
                return fixed  # floor and ceiling were changed since: they come first
            return Limits(pinned, _with_rule(fixed.rules, "pin", within & ~pinned))
        if self.max_step is None or last_price is None:
            return fixed
        distance = np.abs(self._prices - last_price)
        near = distance <= self.max_step * (1 + 1e-12)
        if not (within & near).any():
            # Floor and ceiling were moved away from the last price: the nearest price within them.
            near = distance <= distance[within].min()
        return Limits(within & near, _with_rule(fixed.rules, "max_step", within & ~near))


class LatestPrices:
    """Each subject's last price, of the subjects seen most recently."""

    def __init__(self, max_subjects: int = MAX_SUBJECTS) -> None:
        self._max_subjects = max_subjects
        self._prices: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, subject: str) -> bool:
        return subject in self._prices

    def __getitem__(self, subject: str) -> float:
        return self._prices[subject]

    def put(self, subject: str, price: float) -> None:
        self._prices[subject] = price
        self._prices.move_to_end(subject)
        if len(self._prices) > self._max_subjects:
            self._prices.popitem(last=False)

    def forget(self, subject: str) -> None:
        self._prices.pop(subject, None)


def _as_json(ruled_out: dict[str, np.ndarray]) -> str:
    numbers = {rule: np.flatnonzero(arms).tolist() for rule, arms in ruled_out.items()}
    return json.dumps([{"rule": rule, "arms": arms} for rule, arms in numbers.items() if arms])


def _with_rule(rules: str, rule: str, arms: np.ndarray) -> str:
    return json.dumps(json.loads(rules) + json.loads(_as_json({rule: arms})))
