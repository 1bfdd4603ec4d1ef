"""Which arms may be chosen: floor and ceiling, an operator's pin, the largest step of a subject's price."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pricemesh.city.settings import Settings
from pricemesh.store.commands import Decision
from pricemesh.store.reads import Reader

MOST_REMEMBERED = 10_000


class Limits(NamedTuple):
    allowed: np.ndarray | None  # by arm; None where nothing is ruled out
    said: str  # what was ruled out, and by which rule, as JSON


class Guardrails:
    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._prices = np.array(settings.arms.prices)
        self._max_step = settings.guardrails.max_step
        self._reader = reader
        self._latest: OrderedDict[str, float] = OrderedDict()  # the price last given, by subject
        self._taken: OrderedDict[str, Decision] = OrderedDict()  # decisions with a subject, by id
        below = self._prices < (-np.inf if settings.guardrails.floor is None else settings.guardrails.floor)
        above = self._prices > (
            np.inf if settings.guardrails.ceiling is None else settings.guardrails.ceiling
        )
        said = _said({"floor": below, "ceiling": above})
        self.fixed = Limits(None if said == "[]" else ~(below | above), said)

    def allows(self, arm: int) -> bool:
        """Whether floor and ceiling do."""
        return self.fixed.allowed is None or bool(self.fixed.allowed[arm])

    def limits(self, subject: str | None, pinned_arm: int | None) -> Limits:
        """Floor and ceiling, narrowed by a pin or by the largest step from the subject's last price."""
        fixed = self.fixed
        within = np.ones(len(self._prices), dtype=bool) if fixed.allowed is None else fixed.allowed
        if pinned_arm is not None:
            pinned = np.arange(len(self._prices)) == pinned_arm
            if not (within & pinned).any():
                return fixed  # floor and ceiling have moved since: they come first
            return Limits(pinned, _added(fixed.said, "pin", within & ~pinned))
        last = self._latest.get(subject) if subject is not None else None
        if self._max_step is None or last is None:
            return fixed
        distance = np.abs(self._prices - last)
        near = distance <= self._max_step * (1 + 1e-12)
        if not (within & near).any():
            # Floor and ceiling have moved away from the last price: as near as they let us.
            near = distance <= distance[within].min()
        return Limits(within & near, _added(fixed.said, "max_step", within & ~near))

    def taken(self, decision_id: str) -> Decision | None:
        """A decision that is asked for again: it is no step."""
        return self._taken.get(decision_id)

    def stepped(self, subject: str, price: float) -> None:
        _put(self._latest, subject, price)

    def take(self, decision: Decision) -> None:
        _put(self._taken, decision.id, decision)

    def forget(self, asked: Iterable[tuple[str | None, str | None]]) -> None:
        """What was never given; whatever was is read again."""
        for decision_id, subject in asked:
            self._latest.pop(subject or "", None)
            self._taken.pop(decision_id or "", None)

    async def recall(self, asked: Iterable[tuple[str | None, str | None]]) -> None:
        """Fetch what is not in memory any more: prices last given, and decisions that are asked for again
        and must not count as a step."""
        if self._max_step is None:
            return
        for decision_id, subject in asked:
            if subject is None:
                continue
            if decision_id is not None and decision_id not in self._taken:
                kept = await asyncio.to_thread(self._reader.decision, decision_id)
                if kept is not None and decision_id not in self._taken:
                    self.take(kept.decision)
            if subject not in self._latest:
                price = await asyncio.to_thread(self._reader.latest_price, subject)
                if price is not None and subject not in self._latest:
                    self.stepped(subject, price)


def _put(memory: OrderedDict[str, Any], key: str, value: Any) -> None:
    """Remember the newest so many."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > MOST_REMEMBERED:
        memory.popitem(last=False)


def _said(ruled_out: dict[str, np.ndarray]) -> str:
    numbers = {rule: np.flatnonzero(arms).tolist() for rule, arms in ruled_out.items()}
    return json.dumps([{"rule": rule, "arms": arms} for rule, arms in numbers.items() if arms])


def _added(said: str, rule: str, arms: np.ndarray) -> str:
    return json.dumps(json.loads(said) + json.loads(_said({rule: arms})))
