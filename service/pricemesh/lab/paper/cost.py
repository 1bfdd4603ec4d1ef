"""The cost of a round: time, memory and bytes against the cities N, the arms K, the shared features c and the
local ones s. Time is the CPU time of this process, so that other load of the machine matters little."""

import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import process_time
from typing import NamedTuple

import numpy as np

from pricemesh.lab.mesh import Mesh
from pricemesh.lab.paper.study import studied
from pricemesh.lab.worlds import Linear

POLICIES = ("disjoint", "shared", "netlinucb", "netsgducb", "netpool")
BASE = Linear(cities=8, arms=5, shared=8, local=8)
SCALES: Mapping[str, Sequence[int]] = {
    "cities": (8, 32, 128),
    "arms": (5, 80, 640),
    "shared": (8, 32, 128, 256),
    "local": (8, 32, 128, 256),
}
SYMBOLS = {"cities": "N", "arms": "K", "shared": "c", "local": "s"}
INVERTED = {"disjoint": "disjoint, inverting", "shared": "shared, inverting"}
ROUNDS, WARM = 12, 3


class Cost(NamedTuple):
    policy: str
    varied: str  # cities, arms, shared or local
    value: int
    seconds: float  # a round
    memory: int  # bytes of the learners
    bytes: int  # that all cities send in a round, each to every other

    @classmethod
    def of(cls, row: Mapping[str, str]) -> "Cost":
        return cls(
            row["policy"],
            row["varied"],
            int(row["value"]),
            float(row["seconds"]),
            int(row["memory"]),
            int(row["bytes"]),
        )


@dataclass(frozen=True)
class Point:
    policy: str
    varied: str
    value: int

    @property
    def world(self) -> Linear:
        return replace(BASE, **{self.varied: self.value})  # type: ignore[arg-type]


def all_points(*, quick: bool = False) -> list[Point]:
    """A quick study omits the largest sizes."""
    return [
        Point(policy, varied, value)
        for policy in (*POLICIES, *INVERTED.values())
        for varied, values in SCALES.items()
        for value in (values[:-1] if quick else values)
    ]


def measure_all(points: Sequence[Point]) -> Iterator[Cost]:
    for point in points:
        yield _inverting(point) if point.policy in INVERTED.values() else _playing(point)


def _playing(point: Point) -> Cost:
    world = point.world
    entry = studied(point.policy)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    mesh = Mesh(world, entry.policy, [0])
    for _ in mesh.play(WARM):
        pass
    memory = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    times = []
    started = process_time()
    for _ in mesh.play(ROUNDS):
        times.append(process_time() - started)
        started = process_time()
    receivers = 1 if point.policy == "shared" else world.cities - 1  # the central server, or all other cities
    bytes_sent = world.cities * receivers * mesh.bytes_per_tick
    return Cost(point.policy, point.varied, point.value, float(np.median(times)), memory, bytes_sent)


def _inverting(point: Point) -> Cost:
    """The cost that the paper's table counts: every regression's matrix is inverted in every round."""
    world = point.world
    stack, size = world.cities * world.arms, world.shared + world.widest_local
    if point.policy == INVERTED["shared"]:
        stack, size = world.arms, world.shared + world.cities * world.widest_local
    matrices = np.broadcast_to(np.eye(size) + 0.1, (stack, size, size)).copy()
    times = []
    for _ in range(3):
        started = process_time()
        np.linalg.inv(matrices)
        times.append(process_time() - started)
    return Cost(point.policy, point.varied, point.value, float(np.median(times)), 2 * matrices.nbytes, 0)


def exponent(costs: Sequence[Cost], policy: str, varied: str, what: str) -> float:
    """The exponent of `what` in the size varied, from the two largest sizes, where fixed costs are small."""
    points = sorted(
        (cost.value, getattr(cost, what)) for cost in costs if (cost.policy, cost.varied) == (policy, varied)
    )[-2:]
    (low, first), (high, last) = points
    return float(np.log(last / first) / np.log(high / low)) if first and last else 0.0
