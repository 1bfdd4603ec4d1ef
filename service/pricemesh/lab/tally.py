"""The results of a drive: one tally for each city, and one row for each decision."""

from collections import Counter
from dataclasses import dataclass, field

from pricemesh.lab.latency import Latencies
from pricemesh.lab.towns import Town

MAX_TRACK_POINTS = 4000


@dataclass
class Tally:
    """The results of one city."""

    town: Town
    due: int = 0
    decisions: int = 0  # answered calls of /price
    in_time: int = 0  # of these, while demand was being sent
    regret: float = 0.0
    reward: float = 0.0
    prices: Counter[float] = field(default_factory=Counter)  # how often each price was chosen
    price_latency: Latencies = field(default_factory=Latencies)
    feedback_latency: Latencies = field(default_factory=Latencies)
    feedback_calls: int = 0
    lessons: int = 0  # feedback that the city learned
    losses: int = 0  # feedback that was never sent, as the plan says
    duplicates: int = 0  # feedback that was sent twice, as the plan says
    failures: Counter[str] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)  # by failure, from the first problem document
    track: list[tuple[float, int, float]] = field(default_factory=list)  # (seconds, decisions, regret)
    _interval_seconds: float = 0.1

    @property
    def regret_per_decision(self) -> float:
        return self.regret / self.decisions if self.decisions else 0.0

    def mark(self, seconds: float) -> None:
        """Add a point to the track. In a long run points are dropped and the interval doubles."""
        if not self.track or seconds - self.track[-1][0] >= self._interval_seconds:
            self.track.append((seconds, self.decisions, self.regret))
            if len(self.track) >= MAX_TRACK_POINTS:
                self.track = self.track[::2]
                self._interval_seconds *= 2


Row = tuple[float, str, int, int, float, float, float]  # of ROW_NAMES
ROW_NAMES = ("seconds", "city", "arm", "best_arm", "reward", "regret", "latency_seconds")
