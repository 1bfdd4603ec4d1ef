"""Raw histories of observations, from which tests recompute what a learner must know."""

from dataclasses import dataclass, field

import numpy as np

from pricemesh.core.arrays import Array


@dataclass
class History:
    """Every observation of one city."""

    arms: int
    shared: int
    local: int
    rows: list[tuple[Array, int, float]] = field(default_factory=list)

    def add(self, x: Array, arm: int, reward: float) -> None:
        self.rows.append((x, arm, reward))

    def of(self, arm: int) -> tuple[Array, Array]:
        """Design matrix and rewards of one arm."""
        observations = [(x, r) for x, k, r in self.rows if k == arm]
        design = np.array([x for x, _ in observations]).reshape(-1, self.shared + self.local)
        return design, np.array([r for _, r in observations])

    def normal_equations(self, arm: int, ridge: float = 1.0) -> tuple[Array, Array]:
        """W = ridge I + X'X and b = X'r."""
        design, rewards = self.of(arm)
        return ridge * np.eye(design.shape[1]) + design.T @ design, design.T @ rewards


def random_observation(rng: np.random.Generator, dim: int, arms: int) -> tuple[Array, int, float]:
    x = rng.normal(size=dim)
    x /= max(1.0, float(np.linalg.norm(x)))
    return x, int(rng.integers(arms)), float(rng.normal())
