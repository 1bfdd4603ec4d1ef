"""The truth, where a driver knows it: regret of cities together and alone, as a demonstration reports it."""

from collections.abc import Sequence
from typing import Any

from pricemesh.errors import NotADemo
from pricemesh.http.schemas import CityTruth, Regret

MOST_MARKS = 120


class Lab:
    def __init__(self, *, demo: bool) -> None:
        self._demo = demo
        self._latest: dict[str, dict[str, Any]] = {}
        self._marks: list[tuple[float, dict[str, tuple[float | None, float | None]]]] = []
        self._apart = 0.9

    def report(self, cities: Sequence[CityTruth], now: float) -> None:
        if not self._demo:
            raise NotADemo(
                "only a demonstration knows the truth: this city takes none unless lab.demo is on "
                "(PRICEMESH_LAB_DEMO=true)"
            )
        self._latest = {told.city: {**told.model_dump(), "at": now} for told in cities}
        if not self._marks or now - self._marks[-1][0] >= self._apart:
            self._marks.append(
                (
                    round(now, 3),
                    {told.city: (_each(told.together), _each(told.alone)) for told in cities},
                )
            )
            if len(self._marks) >= MOST_MARKS:  # of a long run ever fewer
                self._marks = self._marks[::2]
                self._apart *= 2

    @property
    def latest(self) -> list[dict[str, Any]]:
        return list(self._latest.values())

    @property
    def marks(self) -> list[Any]:
        """[when, {city: [regret a decision together, alone]}], from the first report on; null before
        a decision is made."""
        return list(self._marks)


def _each(regret: Regret | None) -> float | None:
    return None if regret is None or not regret.decisions else regret.regret / regret.decisions
