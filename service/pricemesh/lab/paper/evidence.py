"""Means, ratios and exponents from the tables, each with two standard errors, as the claims need them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.lab.paper.study import Setting
from pricemesh.lab.paper.tables import Tables
from pricemesh.lab.simulate import standard_error


@dataclass(frozen=True)
class Estimate:
    value: float
    error: float  # two standard errors over seeds

    def below(self, bound: float) -> bool:
        return self.value + self.error < bound

    def above(self, bound: float) -> bool:
        return self.value - self.error > bound

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def estimate(by_seed: Array) -> Estimate:
    return Estimate(float(by_seed.mean()), 2.0 * standard_error(by_seed))


def ratio(ours: Array, theirs: Array) -> Estimate:
    """The ratio of the means. The error is that of the differences, paired by seed."""
    value = float(ours.mean() / theirs.mean())
    return Estimate(value, 2.0 * standard_error((ours - value * theirs) / theirs.mean()))


class Evidence:
    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def average(self, setting: Setting, policy: str, column: str = "regret") -> Estimate:
        return estimate(self.tables.by_seed(setting, policy, column))

    def ratio(self, setting: Setting, policy: str, to: str = "disjoint", column: str = "regret") -> Estimate:
        by_seed = self.tables.by_seed
        return ratio(by_seed(setting, policy, column), by_seed(setting, to, column))

    def growth(self, setting: Setting, since: Setting, policy: str) -> Estimate:
        """The regret of a policy in one setting over that in another."""
        return ratio(self.tables.by_seed(setting, policy), self.tables.by_seed(since, policy))

    def best(self, setting: Setting, among: Sequence[str]) -> tuple[str, dict[str, float]]:
        averages = {policy: self.average(setting, policy).value for policy in among}
        return min(averages, key=averages.__getitem__), averages

    def exponent(self, scale: Mapping[int, Setting], policy: str) -> Estimate:
        """The exponent of the network's regret in the size that `scale` varies."""
        sizes = np.log(np.array(list(scale), dtype=np.float64))
        regret = [self.tables.by_seed(setting, policy) for setting in scale.values()]
        return estimate(np.asarray(np.polyfit(sizes, np.log(np.maximum(regret, 1e-12)), 1)[0]))
