"""The cost of gossip: the bytes of a letter, and the time to absorb letters, by cities, arms and features."""

import numpy as np

from pricemesh.core.policies import Shape, make_policy
from pricemesh.core.summary import Summary
from pricemesh.gossip.letter import Seal
from pricemesh.lab.bench.core import peer_summaries, train_learner
from pricemesh.lab.bench.ratios import Ratio, Say, Suite, microseconds, ratio
from pricemesh.lab.bench.stopwatch import race


def gossip(*, quick: bool, say: Say) -> Suite:
    suite = Suite("gossip", "Bytes of a letter, and time to absorb letters")
    suite.ratios += [_letter(*size) for size in ((5, 3), (10, 10), (20, 20))]
    say("absorbing letters")
    rng = np.random.default_rng(0)
    sizes = [(2, 10, 10), (12, 10, 10)] + ([] if quick else [(100, 10, 10), (12, 20, 10), (12, 10, 20)])
    cities = {(n, arms, c): train_learner("netpool", Shape(arms, c, 5), rng) for n, arms, c in sizes}
    summaries = {size: peer_summaries(city, size[0] - 1, rng) for size, city in cities.items()}
    times = race(
        {str(size): lambda size=size: cities[size].absorb_summaries("me", summaries[size]) for size in sizes},  # type: ignore[misc]
        repetitions=3 if quick else 9,
    )
    base = times[str(sizes[0])]
    for n, arms, c in sizes[1:]:
        seconds = times[str((n, arms, c))]
        what = f"absorb, N={n} K={arms} c={c}"
        suite.ratios.append(ratio(what, seconds, "N=2 K=10 c=10", base, figure=microseconds(seconds)))
    return suite


def _letter(arms: int, c: int) -> Ratio:
    numbers = make_policy("netpool").learner(Shape(arms, c, 2)).numbers()
    wire = Seal(bytes(32)).close(Summary.of("lisbon", 1, 1, bytes(16), numbers)).wire
    minimum = 8 * arms * (c * (c + 1) // 2 + c + 2)
    what = f"bytes of a letter, K={arms} c={c}"
    return ratio(what, [len(wire)], "the numbers as float64", [minimum], figure=f"{len(wire):,} bytes")
