"""The policies rank as expected. Paired over seeds: every policy meets the same contexts and luck."""

import numpy as np
import pytest

from benchmarks.learning.cases import MARKET, Run
from benchmarks.learning.runs import regret_of
from benchmarks.regret import SETTINGS, average_regret
from pricemesh.core.arrays import Array
from pricemesh.lab.simulate import entries, simulate
from pricemesh.lab.worlds import Linear


def regret(world: Linear, spec: str) -> Array:
    return simulate(world, entries([spec], [])[0], range(6), 300).per_round


def assert_clearly_below(better: Array, worse: Array) -> None:
    """By more than four standard errors of the paired difference."""
    gain = worse - better
    assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(len(gain))


def test_cities_that_share_beat_cities_alone_and_netpool_beats_the_papers_algorithms() -> None:
    world = Linear()
    alone = regret(world, "disjoint")
    pooled, averaged = regret(world, "netpool"), regret(world, "netlinucb")
    assert_clearly_below(pooled, averaged)
    assert_clearly_below(averaged, alone)
    assert_clearly_below(regret(world, "netsgducb"), alone)


def test_where_cities_differ_netpool_is_not_worse_than_alone_and_the_others_are() -> None:
    world = Linear(heterogeneity=1.0)
    alone = regret(world, "disjoint")
    assert_clearly_below(regret(world, "netpool"), alone)
    assert_clearly_below(alone, regret(world, "netlinucb"))


def test_the_exact_pool_decides_as_the_central_server() -> None:
    world = Linear(cities=5, local=(1, 2, 0, 3, 2))
    pool = "netpool:heterogeneity=0,trust=equal,alpha=0.7,ridge=1"
    central, exact = regret(world, "shared"), regret(world, pool)
    np.testing.assert_allclose(exact, central, rtol=1e-12)


@pytest.mark.slow
def test_regret_stays_below_the_bounds_in_the_settings_of_the_benchmark() -> None:
    """R(T)/T as a ratio to disjoint, 20 seeds and 1000 rounds; the table is `make regret`'s."""
    by_label = {setting.label: setting for setting in SETTINGS}

    def ratio(label: str, spec: str, base: str = "disjoint") -> float:
        mine, other = (average_regret((by_label[label], name)).mean() for name in (spec, base))
        return float(mine / other)

    usual, quiet = "c=8 s=2 σ=0.5", "c=5 s=5 σ=0.1"
    assert ratio(usual, "netlinucb") <= 0.55
    assert ratio(usual, "netsgducb") <= 0.65
    assert ratio(usual, "netpool") <= 0.40
    assert ratio(usual, "netpool", "shared") <= 1.10
    assert ratio(quiet, "netlinucb") <= 0.75
    assert ratio(quiet, "netpool") <= 0.65
    assert ratio("heterogeneity 1, σ=0.5", "netpool") <= 1.0
    assert ratio("heterogeneity 1, σ=0.1", "netpool") <= 1.15
    every, fifth = (
        average_regret((by_label[label], "netpool")).mean()
        for label in (usual, "the same, gossip every 5th round")
    )
    assert fifth / every <= 1.05


@pytest.mark.slow
def test_in_the_market_demand_beats_cities_alone_in_mean_by_more_than_four_standard_errors() -> None:
    """Of the ratio of each seed, eight seeds and 500 rounds."""
    demand, alone = (
        regret_of(Run(MARKET, policy), range(2000, 2008), 500) for policy in ("demand", "disjoint")
    )
    ratio = demand / alone
    assert 1.0 - ratio.mean() > 4 * ratio.std(ddof=1) / np.sqrt(len(ratio))
