"""Recorded propensities are good for what they are recorded for: to judge a policy that was never run."""

import numpy as np

from pricemesh.core.policies import make_policy
from pricemesh.lab.mesh import Mesh
from pricemesh.lab.worlds import Linear


def test_inverse_propensities_estimate_what_a_fixed_price_would_have_earned() -> None:
    """For every arm, the mean over 200 seeds of estimate minus truth is zero within four standard errors. The
    draws are wide, so that no weight is above 100: with rare larger ones a standard error is not normal."""
    world, seeds, rounds = Linear(cities=3, arms=3, shared=3, local=1), range(200), 60
    policy = make_policy("disjoint", exploration="thompson", thompson_scale=3.0)
    error = np.zeros((len(seeds), 3))
    for step in Mesh(world, policy, seeds).play(rounds):
        assert step.propensity.min() > 0.01
        for arm in range(3):
            estimate = np.where(step.arm == arm, step.reward / step.propensity, 0.0)
            error[:, arm] += (estimate - step.now.expected[..., arm]).mean(axis=1) / rounds
    standard_error = error.std(axis=0, ddof=1) / np.sqrt(len(seeds))
    assert (np.abs(error.mean(axis=0)) <= 4.0 * standard_error).all()
    assert (standard_error < 0.02).all()  # small enough to mean something
