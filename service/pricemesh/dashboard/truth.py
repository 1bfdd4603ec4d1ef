"""The regret that the driver of a demonstration reports: its cities together, and the same cities alone.

Only a driver that simulates the customers knows the truth. What it reports is shown and never learned.
"""

from collections.abc import Sequence
from typing import Any

from pricemesh.errors import NotADemo
from pricemesh.http.truth_schemas import CityTruth, Regret

MAX_MARKS = 120
FIRST_INTERVAL_SECONDS = 0.9  # between marks; reports come once a second


class TruthReports:
    def __init__(self, *, demo: bool) -> None:
        self._demo = demo
        self._latest: dict[str, dict[str, Any]] = {}
        self._marks: list[tuple[float, dict[str, tuple[float | None, float | None]]]] = []
        self._interval_seconds = FIRST_INTERVAL_SECONDS

    def report(self, cities: Sequence[CityTruth], now: float) -> None:
        if not self._demo:
            raise NotADemo(
                "this city is not a demonstration and takes no truth: start it with lab.demo on "
                "(PRICEMESH_LAB_DEMO=true)"
            )
        self._latest = {city.city: {**city.model_dump(), "at": now} for city in cities}
        # A clock that is set back must not stop the marks until it has caught up.
        if not self._marks or abs(now - self._marks[-1][0]) >= self._interval_seconds:
            regrets = {city.city: (_mean_regret(city.together), _mean_regret(city.alone)) for city in cities}
            self._marks.append((round(now, 3), regrets))
            if len(self._marks) >= MAX_MARKS:  # a long run is shown whole, with fewer points
                self._marks = self._marks[::2]
                self._interval_seconds *= 2

    @property
    def latest(self) -> list[dict[str, Any]]:
        return list(self._latest.values())

    @property
    def marks(self) -> list[Any]:
        """[time, {city: [mean regret together, alone]}] since the first report; null before a decision."""
        return list(self._marks)


def _mean_regret(regret: Regret | None) -> float | None:
    return None if regret is None or not regret.decisions else regret.regret / regret.decisions
