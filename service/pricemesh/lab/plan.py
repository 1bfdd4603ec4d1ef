"""The plan of a drive: how many calls, how fast, and which feedback is late, lost or sent twice."""

from dataclasses import dataclass
from math import inf

from pricemesh.core.arrays import not_negative
from pricemesh.errors import InvalidParameter

MAX_RATE = 100_000  # decisions a second at one city


@dataclass(frozen=True)
class Delay:
    """How late feedback comes: exponential in seconds, or uniform in decisions."""

    seconds: float = 0.0
    decisions: int = 0

    @classmethod
    def parse(cls, text: str) -> "Delay":
        """`5s` is exponential with mean 5 seconds; `1000` is up to 1000 decisions late."""
        try:
            delay = cls(seconds=float(text[:-1])) if text.endswith("s") else cls(decisions=int(text))
        except ValueError:
            raise InvalidParameter(f"a delay is 5s (seconds) or 1000 (decisions), not {text!r}") from None
        not_negative("delay", delay.seconds + delay.decisions)
        return delay


@dataclass(frozen=True)
class Plan:
    """The calls to send. Its messages name the options of `pricemesh drive`."""

    seed: int = 0
    rates: tuple[float, ...] | None = None  # calls a second to each city: open loop
    concurrency: int = 1  # callers at each city, without rates: closed loop
    seconds: float | None = None
    decisions: int | None = None  # for each city
    delay: Delay = Delay()
    lose: float = 0.0  # share of feedback that is never sent
    duplicate: float = 0.0  # share of feedback that is sent twice
    drift_at: int | None = None  # after these decisions of a city the truth is drawn anew
    learn: bool = True  # send feedback at all

    def __post_init__(self) -> None:
        for name in ("lose", "duplicate"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidParameter(f"--{name} is a share between 0 and 1, not {getattr(self, name)}")
        for name, value, minimum in (
            ("--seed", self.seed, 0),
            ("--concurrency", self.concurrency, 1),
            ("--decisions", self.decisions, 1),
            ("--drift-at", self.drift_at, 0),
        ):
            if value is not None and value < minimum:
                raise InvalidParameter(f"{name} is {minimum} or more, not {value}")
        if self.rates is not None and not all(0 < rate <= MAX_RATE for rate in self.rates):
            raise InvalidParameter(f"--rate is decisions a second, above 0 and up to {MAX_RATE:,}")
        if self.seconds is not None and not 0 < self.seconds < inf:
            raise InvalidParameter("--seconds is a positive number of seconds, or 0 for no end")
