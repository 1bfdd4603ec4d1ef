"""A ratio and its spread: one quantity against another, repetition by repetition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

Say = Callable[[str], None]  # shows what is being measured


@dataclass(frozen=True)
class Ratio:
    what: str
    against: str
    values: tuple[float, ...]  # ascending, one for each repetition
    figure: str = ""  # the absolute value on this machine
    target: str = ""  # such as "≥ 1.3"; empty: none

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def low(self) -> float:
        """The lowest value; with eight repetitions or more, the lower quartile."""
        return self.values[len(self.values) // 4 if len(self.values) >= 8 else 0]

    @property
    def high(self) -> float:
        return self.values[-1 - (len(self.values) // 4 if len(self.values) >= 8 else 0)]


@dataclass
class Suite:
    """The results of a suite."""

    name: str
    title: str
    ratios: list[Ratio] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was left out, and why


def ratio(
    what: str,
    ours: Sequence[float],
    against: str,
    theirs: Sequence[float],
    *,
    factor: float = 1.0,
    figure: str = "",
    target: str = "",
) -> Ratio:
    """`factor * ours / theirs`, repetition by repetition."""
    values = tuple(sorted(factor * a / b for a, b in zip(ours, theirs, strict=True)))
    return Ratio(what, against, values, figure, target)


def spread(ours: Sequence[float], theirs: Sequence[float], factor: float = 1.0) -> tuple[str, str]:
    """Median and range of the ratio, as a table shows them."""
    result = ratio("", ours, "", theirs, factor=factor)
    return f"{result.median:.2f}", f"{result.values[0]:.2f}–{result.values[-1]:.2f}"


def microseconds(seconds: Sequence[float]) -> str:
    return (
        f"{median(seconds) * 1e6:,.3g} µs" if median(seconds) < 1e-3 else f"{median(seconds) * 1e3:,.3g} ms"
    )


def per_second(rates: Sequence[float]) -> str:
    return f"{median(rates):,.0f}/s"
