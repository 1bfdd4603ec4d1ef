"""What a decision costs in the core: `make bench`. Every figure is a ratio measured in the same run."""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

from collections.abc import Callable
from itertools import islice

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.stopwatch import Times, race
from service.core.arrays import Array
from service.core.policies import Learner, Shape, make_policy
from service.core.summary import Summary
from service.core.ucb import choose
from service.sim.mesh import Mesh
from service.sim.worlds import Linear

ARMS, SHARED, LOCAL = 10, 10, 10
DIM = SHARED + LOCAL
HISTORY = 2000


def trained(name: str, rng: np.random.Generator) -> Learner:
    learner = make_policy(name).learner(Shape(ARMS, SHARED, LOCAL))
    for _ in range(HISTORY):
        learner.learn(rng.normal(size=DIM) / 5, int(rng.integers(ARMS)), float(rng.normal()))
    return learner


def with_peers(name: str, peers: int, rng: np.random.Generator) -> Learner:
    learner = trained(name, rng)
    numbers = trained(name, rng).numbers()
    held = {str(i): Summary.of(str(i), 0, 1, bytes(16), numbers) for i in range(peers)}
    learner.absorb_held("me", held)
    return learner


def bare_dense(theta: Array, covariance: Array, x: Array) -> Callable[[], object]:
    """The formula as one would type it in numpy, on arrays that lie ready."""
    return lambda: (theta @ x, 0.7 * np.sqrt((covariance @ x) @ x))


def mabwiser(rng: np.random.Generator, x: Array) -> Callable[[], object]:
    from mabwiser.mab import MAB, LearningPolicy

    mab = MAB(list(range(ARMS)), LearningPolicy.LinUCB(alpha=0.7))
    contexts = rng.normal(size=(HISTORY, DIM)) / 5
    mab.fit(rng.integers(ARMS, size=HISTORY), rng.normal(size=HISTORY), contexts)
    row = x.reshape(1, -1)
    return lambda: mab.predict(row)


def vowpal_wabbit(rng: np.random.Generator, x: Array) -> Callable[[], object]:
    from vowpalwabbit import Workspace

    def features(row: Array) -> str:
        shared = " ".join(f"c{i}:{v:.6f}" for i, v in enumerate(row[:SHARED]))
        local = " ".join(f"s{i}:{v:.6f}" for i, v in enumerate(row[SHARED:]))
        return f"| {shared} {local}"

    vw = Workspace(f"--cb_explore {ARMS} --squarecb --quiet")
    for _ in range(HISTORY):
        arm, cost = rng.integers(ARMS) + 1, rng.normal()
        vw.learn(f"{arm}:{cost:.6f}:{1 / ARMS} {features(rng.normal(size=DIM) / 5)}")
    line = features(x)
    return lambda: vw.predict(line)


def one_by_one(name: str, world: Linear, seeds: range) -> Callable[[], object]:
    """The mesh as a loop over seeds and cities with a learner each; one call is one round."""
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


def main() -> None:
    console = Console()
    rng = np.random.default_rng(0)
    x = rng.normal(size=DIM) / 5

    table = Table(title=f"One score, K={ARMS}, c={SHARED}, s={LOCAL}", title_justify="left")
    for head in ("contender", "µs", "against", "ratio", "middle half"):
        table.add_column(head)

    pool = with_peers("netpool", 1, rng)
    assert hasattr(pool, "pooled")
    contenders: dict[str, Callable[[], object]] = {
        "bare numpy": bare_dense(pool.pooled.theta.copy(), pool.pooled.inverse.copy(), x),
        "netpool, 1 peer": lambda: pool.score(x),
    }
    for name in ("netpool", "netlinucb", "netsgducb"):
        for peers in (1, 1000):
            learner = with_peers(name, peers, rng)
            contenders[f"{name}, {_peers(peers)}"] = lambda learner=learner: learner.score(x)  # type: ignore[misc]
    contenders["netpool, 1 peer, and choose"] = lambda: choose(pool.score(x))
    contenders["MABWiser LinUCB predict"] = mabwiser(rng, x)
    contenders["Vowpal Wabbit predict"] = vowpal_wabbit(rng, x)
    calls = {name: 300 if name.startswith("MAB") else 3000 for name in contenders}
    times = race(contenders, calls=calls)

    def line(name: str, base: str) -> None:
        _line(table, name, times[name], base, times[base])

    line("netpool, 1 peer", "bare numpy")
    for name in ("netpool", "netlinucb", "netsgducb"):
        line(f"{name}, 1000 peers", f"{name}, 1 peer")
    line("MABWiser LinUCB predict", "netpool, 1 peer, and choose")
    line("Vowpal Wabbit predict", "netpool, 1 peer, and choose")
    console.print(table)

    _by_size(console, rng)
    world, seeds = Linear(), range(20)
    table = Table(title="One round of 12 cities by 20 seeds, K=5, c=8, s=2", title_justify="left")
    for head in ("contender", "µs", "against", "ratio", "middle half"):
        table.add_column(head)
    for name in ("disjoint", "netlinucb", "netsgducb", "netpool"):
        loop, together = one_by_one(name, world, seeds), vectorised(name, world, seeds)
        for run in (loop, together):
            list(islice(iter(run, None), 2))
        times = race({"loop": loop, "together": together}, calls={"loop": 1, "together": 5}, repetitions=9)
        _line(table, f"{name}, one by one", times["loop"], "vectorised", times["together"])
    console.print(table)


def _by_size(console: Console, rng: np.random.Generator) -> None:
    """How a score and a lesson of NetPool grow with arms and features."""
    table = Table(title="NetPool by size, against K=10, d=20", title_justify="left")
    for head in ("K", "d", "score µs", "ratio", "learn µs", "ratio"):
        table.add_column(head)
    sizes = [(10, 20), (50, 20), (10, 50), (10, 100), (50, 100)]
    contenders: dict[str, Callable[[], object]] = {}
    for arms, dim in sizes:
        learner = make_policy("netpool").learner(Shape(arms, dim // 2, dim - dim // 2))
        x = rng.normal(size=dim) / dim**0.5
        contenders[f"score {arms} {dim}"] = lambda learner=learner, x=x: learner.score(x)  # type: ignore[misc]
        contenders[f"learn {arms} {dim}"] = lambda learner=learner, x=x: learner.learn(x, 0, 1.0)  # type: ignore[misc]
    times = race(contenders, calls=dict.fromkeys(contenders, 300))
    for arms, dim in sizes:
        cells = []
        for verb in ("score", "learn"):
            mine = times[f"{verb} {arms} {dim}"]
            cells += [f"{mine.typical * 1e6:.1f}", f"{mine.against(times[f'{verb} 10 20'])[0]:.2f}"]
        table.add_row(str(arms), str(dim), *cells)
    console.print(table)


def _peers(number: int) -> str:
    return "1 peer" if number == 1 else f"{number} peers"


def _line(table: Table, name: str, mine: Times, base: str, other: Times) -> None:
    ratio, low, high = mine.against(other)
    table.add_row(name, f"{mine.typical * 1e6:.2f}", base, f"{ratio:.2f}", f"{low:.2f}–{high:.2f}")


if __name__ == "__main__":
    main()
