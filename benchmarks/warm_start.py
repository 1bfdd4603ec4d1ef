"""What logged sales are worth: the regret of a city's first decisions, after a history at random prices.

    python -m benchmarks.warm_start [--rows 10000] [--decisions 1000] [--seeds 20] [--first 0]

One city of the market world, against the same city without a history. The history is learned as an import
learns it: from the rows, without a chance that a policy predicted.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from pricemesh.core.policies import Learner, make_policy
from pricemesh.core.ucb import choose
from pricemesh.lab.market import Market
from pricemesh.lab.mesh import Mesh
from pricemesh.lab.worlds import SalesInstance, at_arm


def regrets(policy: str, seeds: Sequence[int], rows: int, decisions: int) -> np.ndarray:
    """The sum over the first decisions, by seed."""
    world = Market(cities=1, arms=10)
    learner: Learner = Mesh(world, make_policy(policy), seeds).blocks[0].learner
    instance = world.instance(seeds)
    rng = np.random.default_rng([len(seeds), rows, *seeds])
    total = np.zeros(len(seeds))
    for i, now in zip(range(rows + decisions), instance.rounds(), strict=False):
        x = now.context.reshape(*learner.shape.batch, -1)
        is_logged = i < rows
        if is_logged:
            arm = rng.integers(world.arms, size=(len(seeds), 1))
        else:
            arm = choose(learner.score(x)).reshape(len(seeds), 1)
            best = now.expected.argmax(axis=-1)
            total += (at_arm(now.expected, best) - at_arm(now.expected, arm))[:, 0]
        arms = arm.reshape(learner.shape.batch)
        chance = None if is_logged else learner.chances(x, arms)
        assert isinstance(instance, SalesInstance)
        outcome = instance.sold(now, arm) if learner.learns_sales else instance.reward(now, arm)
        learner.learn(x, arms, outcome.reshape(learner.shape.batch), chance)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("rows", 10_000), ("decisions", 1000), ("seeds", 20), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    print(f"market, 10 prices, one city; regret of {options.decisions} decisions, {options.seeds} seeds")
    for policy in ("demand", "netpool"):
        cold = regrets(policy, seeds, 0, options.decisions)
        warm = regrets(policy, seeds, options.rows, options.decisions)
        ratios = warm / cold
        error = ratios.std(ddof=1) / np.sqrt(len(ratios))
        print(
            f"{policy:8} cold {cold.mean():8.1f}  after {options.rows:,} rows {warm.mean():8.1f}  "
            f"ratio {ratios.mean():.3f} ± {error:.3f} (worst {ratios.max():.3f})"
        )


if __name__ == "__main__":
    main()
