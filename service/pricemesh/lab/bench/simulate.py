"""Rounds of the vectorised mesh, against a loop over seeds and cities with one learner for each."""

from collections.abc import Callable

import numpy as np

from pricemesh.core.policies import Shape, make_policy
from pricemesh.core.ucb import choose
from pricemesh.lab.bench.ratios import Say, Suite, microseconds, ratio
from pricemesh.lab.bench.stopwatch import race
from pricemesh.lab.mesh import Mesh
from pricemesh.lab.worlds import Linear


def simulate(*, quick: bool, say: Say) -> Suite:
    suite = Suite("simulate", "Rounds a second of all cities and seeds at once; N cities, K arms, d features")
    seeds = range(4 if quick else 20)
    worlds = {"N=12 K=5 d=10": Linear()}
    if not quick:
        worlds["N=12 K=20 d=10"] = Linear(arms=20)
        worlds["N=12 K=5 d=40"] = Linear(shared=32, local=8)
        worlds["N=48 K=5 d=10"] = Linear(cities=48)
    for size, world in worlds.items():
        for name in ("disjoint",) if "N=48" in size else ("disjoint", "netpool"):
            say(f"{name}, {size}")
            loop, together = one_by_one(name, world, seeds), vectorised(name, world, seeds)
            times = race({"loop": loop, "together": together}, repetitions=3 if quick else 7)
            figure = f"{microseconds(times['together'])} a round"
            what = f"{name}, {size}, {len(seeds)} seeds"
            suite.ratios.append(ratio(what, times["loop"], "one by one", times["together"], figure=figure))
    return suite


def one_by_one(name: str, world: Linear, seeds: range) -> Callable[[], object]:
    """The mesh as a loop over seeds and cities; one call plays one round."""
    policy = make_policy(name)
    shape = Shape(world.arms, world.shared, world.widest_local)
    towns = [[policy.learner(shape) for _ in range(world.cities)] for _ in seeds]
    instance = world.instance(list(seeds))
    rounds = instance.rounds()
    names = [str(i) for i in range(world.cities)]

    def play() -> None:
        now = next(rounds)
        arms = np.empty((len(seeds), world.cities), dtype=np.int64)
        for s, cities in enumerate(towns):
            if cities[0].fields:
                numbers = [city.numbers() for city in cities]
                for i, city in enumerate(cities):
                    order = [i, *(j for j in range(world.cities) if j != i)]
                    stack = city.layout.unpack(np.stack([numbers[j] for j in order]))
                    city.absorb(stack, tuple(names[j] for j in order))
            for i, city in enumerate(cities):
                arms[s, i] = choose(city.score(now.context[s, i]))
        rewards = instance.reward(now, arms)
        for s, cities in enumerate(towns):
            for i, city in enumerate(cities):
                city.learn(now.context[s, i], arms[s, i], rewards[s, i])

    return play


def vectorised(name: str, world: Linear, seeds: range) -> Callable[[], object]:
    steps = Mesh(world, make_policy(name), list(seeds)).play(1 << 30)
    return lambda: next(steps)
