"""Learners of one city that have learned random rewards, and their summaries."""

import numpy as np

from pricemesh.core.policies import Learner, Shape, make_policy
from pricemesh.core.summary import Summary

PEER_POLICIES = ("netpool", "netlinucb", "netsgducb")
ARMS, SHARED, LOCAL = 3, 4, 2
DIM = SHARED + LOCAL


def trained_learner(name: str, seed: int, rounds: int = 60, **values: object) -> Learner:
    rng = np.random.default_rng(seed)
    learner = make_policy(name, **values).learner(Shape(ARMS, SHARED, LOCAL))
    for _ in range(rounds):
        learner.learn(rng.normal(size=DIM) / 3, int(rng.integers(ARMS)), float(rng.normal()))
    return learner


def summaries_of(learners: dict[str, Learner]) -> dict[str, Summary]:
    return {
        origin: Summary.of(origin, 1, 1, bytes(16), learner.numbers()) for origin, learner in learners.items()
    }
