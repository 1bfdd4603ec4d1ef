"""The cost of a decision in the core: score, learn and absorb, by arms, features and peers."""

from collections.abc import Callable

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Learner, Shape, make_policy
from pricemesh.core.summary import Summary
from pricemesh.core.ucb import choose
from pricemesh.lab.bench.ratios import Say, Suite, microseconds, ratio
from pricemesh.lab.bench.stopwatch import race

ALPHA = 0.7


def train_learner(name: str, shape: Shape, rng: np.random.Generator, lessons: int = 500) -> Learner:
    learner = make_policy(name).learner(shape)
    for _ in range(lessons):
        x = rng.normal(size=shape.dim) / shape.dim**0.5
        learner.learn(x, int(rng.integers(shape.arms)), float(rng.normal()))
    return learner


def peer_summaries(learner: Learner, peers: int, rng: np.random.Generator) -> dict[str, Summary]:
    """Summaries of `peers` cities."""
    numbers = train_learner("netpool", learner.shape, rng).numbers()
    return {f"city{i}": Summary.of(f"city{i}", 1, 500, bytes(16), numbers) for i in range(peers)}


def products(theta: Array, covariance: Array, x: Array) -> Callable[[], object]:
    """The matrix products of a score alone, on prepared arrays, by the shortest way to BLAS."""
    rows, first_columns = covariance.reshape(-1, len(x)), covariance[..., 0].copy()
    return lambda: (rows.dot(x), first_columns.dot(x), theta.dot(x))


def expression(theta: Array, covariance: Array, x: Array) -> Callable[[], object]:
    """The formula as one would type it in numpy, on prepared arrays."""
    return lambda: (theta @ x, ALPHA * np.sqrt((covariance @ x) @ x))


def one_product(covariance: Array, x: Array) -> Callable[[], object]:
    rows = covariance.reshape(-1, len(x))
    return lambda: rows @ x


def core(*, quick: bool, say: Say) -> Suite:
    suite = Suite("core", "A decision in the core, NetPool; K arms, c shared and s local features")
    rng = np.random.default_rng(0)
    repetitions = 5 if quick else 21
    say("a score against its parts")
    _score(suite, rng, repetitions)
    say("arms and features")
    _sizes(suite, rng, repetitions, quick)
    say("peers")
    _peers(suite, rng, repetitions, (1, 10) if quick else (1, 1000))
    return suite


def _score(suite: Suite, rng: np.random.Generator, repetitions: int) -> None:
    small, large = (
        train_learner("netpool", shape, rng) for shape in (Shape(10, 10, 10), Shape(50, 100, 100))
    )
    x, wide = rng.normal(size=20) / 5, rng.normal(size=200) / 15
    rows = rng.normal(size=(100, 20)) / 5
    arrays = small.pooled.theta.copy(), small.pooled.inverse.copy()  # type: ignore[attr-defined]
    times = race(
        {
            "score": lambda: small.score(x),
            "score and choose": lambda: choose(small.score(x)),
            "100 at once": lambda: small.score(rows),
            "products": products(*arrays, x),
            "expression": expression(*arrays, x),
            "score, large": lambda: large.score(wide),
            "one product, large": one_product(large.pooled.inverse, wide),  # type: ignore[attr-defined]
        },
        repetitions=repetitions,
    )
    score, many = times["score"], times["100 at once"]
    figure = microseconds(score)
    suite.ratios += [
        ratio(
            "score, K=10 c=s=10",
            score,
            "its three matrix products alone",
            times["products"],
            figure=figure,
            target="≤ 1.5",
        ),
        ratio("score", score, "the bare numpy expression", times["expression"], figure=figure),
        ratio(
            "score, 100 contexts at once", many, "100 scores", score, factor=0.01, figure=microseconds(many)
        ),
        ratio(
            "matrix-vector rate of score, K=50 c=s=100",
            times["one product, large"],
            "one product of that size",
            times["score, large"],
            figure=microseconds(times["score, large"]),
            target="≥ 0.8",
        ),
    ]


def _sizes(suite: Suite, rng: np.random.Generator, repetitions: int, quick: bool) -> None:
    base = (10, 10, 10)
    sizes = [base, (50, 10, 10), (10, 50, 10), (10, 10, 50)] + ([] if quick else [(50, 50, 50)])
    contenders: dict[str, Callable[[], object]] = {}
    for arms, c, s in sizes:
        learner = train_learner("netpool", Shape(arms, c, s), rng)
        x = rng.normal(size=c + s) / (c + s) ** 0.5
        contenders[f"score {arms} {c} {s}"] = lambda learner=learner, x=x: learner.score(x)  # type: ignore[misc]
        contenders[f"learn {arms} {c} {s}"] = lambda learner=learner, x=x: learner.learn(x, 0, 1.0)  # type: ignore[misc]
    times = race(contenders, repetitions=repetitions)
    for verb in ("score", "learn"):
        for arms, c, s in sizes[1:]:
            seconds = times[f"{verb} {arms} {c} {s}"]
            what, other = f"{verb}, K={arms} c={c} s={s}", "K=10 c=s=10"
            suite.ratios.append(
                ratio(what, seconds, other, times[f"{verb} 10 10 10"], figure=microseconds(seconds))
            )


def _peers(suite: Suite, rng: np.random.Generator, repetitions: int, counts: tuple[int, int]) -> None:
    shape = Shape(10, 10, 10)
    few, many = (train_learner("netpool", shape, rng) for _ in counts)
    x = rng.normal(size=20) / 5
    summaries = [
        peer_summaries(learner, count, rng) for learner, count in zip((few, many), counts, strict=True)
    ]
    for learner, letters in zip((few, many), summaries, strict=True):
        learner.absorb_summaries("me", letters)
    times = race({"few": lambda: few.score(x), "many": lambda: many.score(x)}, repetitions=repetitions)
    what, other = f"score, {counts[1]} peers absorbed", f"{counts[0]} peer"
    suite.ratios.append(ratio(what, times["many"], other, times["few"], figure=microseconds(times["many"])))
    times = race(
        {
            "few": lambda: few.absorb_summaries("me", summaries[0]),
            "many": lambda: many.absorb_summaries("me", summaries[1]),
        },
        repetitions=min(5, repetitions),
    )
    seconds = times["many"]
    what, other = f"absorb {counts[1]} peers", f"absorb {counts[0]}"
    suite.ratios.append(ratio(what, seconds, other, times["few"], figure=microseconds(seconds)))
