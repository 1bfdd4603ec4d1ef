"""Contenders timed in turn within one run, so that a noisy machine is noisy for all of them."""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True)
class Times:
    """Seconds a call, one figure a repetition, in the same order for all contenders."""

    seconds: list[float]

    @property
    def typical(self) -> float:
        return median(self.seconds)

    def against(self, other: "Times") -> tuple[float, float, float]:
        """How many times as long as `other`: median and range of the middle half over repetitions."""
        ratios = sorted(a / b for a, b in zip(self.seconds, other.seconds, strict=True))
        quarter = len(ratios) // 4
        return median(ratios), ratios[quarter], ratios[-1 - quarter]


def race(
    contenders: Mapping[str, Callable[[], object]], *, calls: Mapping[str, int], repetitions: int = 15
) -> dict[str, Times]:
    """Time `calls[name]` calls of each contender, in turn, `repetitions` times."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    gc.disable()
    try:
        for _ in range(repetitions):
            for name, run in contenders.items():
                count = calls[name]
                started = perf_counter()
                for _ in range(count):
                    run()
                seconds[name].append((perf_counter() - started) / count)
    finally:
        gc.enable()
    return {name: Times(values) for name, values in seconds.items()}


def spread(ours: Sequence[float], theirs: Sequence[float], factor: float = 1.0) -> tuple[str, str]:
    """Median and range of `factor * ours / theirs`, repetition by repetition, as a table shows them."""
    ratios = sorted(factor * a / b for a, b in zip(ours, theirs, strict=True))
    return f"{median(ratios):.2f}", f"{ratios[0]:.2f}–{ratios[-1]:.2f}"
