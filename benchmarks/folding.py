"""What a tick costs a city with many peers: CPU time of a fold from nothing, and of one after some changed.

    python -m benchmarks.folding --peers 10 100 1000 --changed 0.05

Each tick, the receiving city and `--changed` of its peers have learned something. `on the loop` is the part
that prices wait for: reading the own summary before the fold, and adopting its result; the rest runs in a
thread. One thread of BLAS; medians over ticks. `in rows` is the memory that stays between folds, `while
folding` what a fold needs beside it.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
import tracemalloc
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from pricemesh.core.ladder import Ladder
from pricemesh.core.peer_rows import PeerRows
from pricemesh.core.policies import Learner, Shape, make_policy
from pricemesh.core.summary import Summary

POLICIES = ("netpool", "demand")
ROUNDS = 120  # that every city learns before the first tick
TICKS = 9
MAX_CHANCE = 0.9


class Mesh:
    """All cities learn as one batch; the first receives the letters of the others."""

    def __init__(self, policy: str, peers: int, arms: int, features: int) -> None:
        ladder = Ladder(np.linspace(1.0, 3.0, arms), low=1.0, high=3.0)
        self.rng = np.random.default_rng(0)
        self.cities = make_policy(policy).learner(
            Shape(arms, features, features, batch=(peers + 1,), ladder=ladder)
        )
        self.receiver = make_policy(policy).learner(Shape(arms, features, features, ladder=ladder))
        self.names = [f"city{i:04}" for i in range(peers + 1)]
        self.summaries: dict[str, Summary] = {}
        dim = self.cities.shape.dim
        self.theta = self.rng.normal(size=(arms, dim)) + 0.3 * self.rng.normal(size=(peers + 1, arms, dim))
        self.version = 0
        for _ in range(ROUNDS):
            self.learn()
        self.write(np.arange(peers + 1))

    def learn(self) -> None:
        count, dim = len(self.names), self.cities.shape.dim
        x, arm = (
            self.rng.normal(size=(count, dim)) / dim**0.5,
            self.rng.integers(len(self.theta[0]), size=count),
        )
        mean = np.vecdot(x, self.theta[np.arange(count), arm])
        if self.cities.learns_sales:
            chance = np.clip(1.0 / (1.0 + np.exp(-mean)), 1.0 - MAX_CHANCE, MAX_CHANCE)
            self.cities.learn(x, arm, (self.rng.random(count) < chance).astype(float), chance)
        else:
            self.cities.learn(x, arm, mean + 0.5 * self.rng.normal(size=count))
        self.version += 1

    def write(self, who: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """New letters of these cities, and the receiver's own state."""
        numbers = self.cities.numbers()
        for i in who:
            name = self.names[i]
            self.summaries[name] = Summary.of(name, 1, self.version, bytes(16), numbers[i])
        self.receiver.restore({name: value[0].copy() for name, value in self.cities.state().items()})

    def tick(self, share: float) -> None:
        self.learn()
        peers = len(self.names) - 1
        self.write(1 + self.rng.choice(peers, max(1, round(share * peers)), replace=False))


class Cost(NamedTuple):
    """In milliseconds of CPU."""

    full: float
    incremental: float
    loop: float
    preparing: float  # of new letters, part of `incremental`
    row_bytes: int  # that stay between folds
    fold_bytes: int  # at most, beside these


def measure(mesh: Mesh, share: float) -> Cost:
    learner, rows = mesh.receiver, PeerRows()
    name = mesh.names[0]
    full, incremental, loop, preparing = [], [], [], []
    tracemalloc.start()
    group = learner.group_of(name, mesh.summaries)
    parts = rows.stack(learner, group)
    row_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    learner.fold(parts, group.origins)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for _ in range(TICKS):
        mesh.tick(share)
        reading, group = timed(lambda: learner.group_of(name, mesh.summaries))
        from_nothing, _ = timed(lambda group=group: fold(learner, group, PeerRows()))  # type: ignore[misc]
        stacking, parts = timed(lambda group=group: rows.stack(learner, group))  # type: ignore[misc]
        folding, result = timed(lambda p=parts, g=group: learner.fold(p, g.origins))  # type: ignore[misc]
        adopting, _ = timed(lambda result=result: learner.adopt(result))  # type: ignore[misc]
        full.append(from_nothing)
        incremental.append(stacking + folding)
        loop.append(reading + adopting)
        preparing.append(stacking)
    return Cost(
        median(full), median(incremental), median(loop), median(preparing), row_bytes, peak_bytes - row_bytes
    )


def fold(learner: Learner, group: Any, rows: PeerRows) -> Any:
    return learner.fold(rows.stack(learner, group), group.origins)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU milliseconds, and the result."""
    start = time.process_time()
    result = work()
    return 1000.0 * (time.process_time() - start), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--changed", type=float, default=0.05, help="share of the peers (default: 0.05)")
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--features", type=int, default=10, help="shared, and as many local ones")
    arguments = parser.parse_args()
    print(f"K={arguments.arms} c={arguments.features}, {arguments.changed:.0%} of peers changed; ms of CPU\n")
    print(
        "| policy | peers | fold from nothing | of a tick | ratio | new letters | on the loop | in rows "
        "| while folding |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for policy in POLICIES:
        for peers in arguments.peers:
            cost = measure(Mesh(policy, peers, arguments.arms, arguments.features), arguments.changed)
            print(
                f"| {policy} | {peers:,} | {cost.full:.1f} | {cost.incremental:.1f} "
                f"| {cost.incremental / cost.full:.2f} | {cost.preparing:.1f} | {cost.loop:.2f} "
                f"| {cost.row_bytes / 1e6:.1f} MB | {cost.fold_bytes / 1e6:.1f} MB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
