"""The confidence intervals of a running mesh, sampled at some rounds: their width, for the whole reward and
for its shared part, and how often they contain the truth.

The policies' radius is alpha standard errors in units of the noise; s = radius / alpha here. The shared
part's interval is that of the same context without its local features.
"""

from statistics import NormalDist
from typing import Any

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.ucb import Score
from pricemesh.lab.mesh import Mesh, Step
from pricemesh.lab.worlds import DRIFT_OFFSET, at_arm

NOMINAL = (50, 68, 80, 90, 95, 99)  # per cent
END_SHARE = 0.1  # of the rounds: the end of a run


class Intervals:
    def __init__(self, mesh: Mesh, rounds: int, *, city_by_city: bool = False) -> None:
        self._mesh = mesh
        self._rounds = rounds
        # Of Proposition 3, without the term that it leaves to a constant.
        self._bound = 1.0 + np.sqrt(np.log(2 * rounds) / 2)
        self._noise: float | None = getattr(mesh.world, "noise", None)
        self._samples: list[tuple[int, dict[str, Array]]] = []
        self.cities: list[dict[str, Any]] = []
        self._probe = None
        if city_by_city:
            elsewhere = mesh.world.instance([seed + DRIFT_OFFSET for seed in mesh.seeds])
            self._probe = next(elsewhere.rounds()).context

    def look(self, step: Step) -> None:
        """Sample the intervals of this round: means over cities and arms, by seed."""
        shared_only = step.now.context.copy()
        shared_only[..., self._mesh.world.shared :] = 0.0
        score = self._mesh.score(shared_only)
        look = {}
        for part, radius in (("whole", step.score.radius), ("shared", score.radius)):
            radius_chosen = at_arm(radius, step.arm)
            look[f"radius_{part}"] = radius_chosen.mean(axis=1)
            look[f"square_{part}"] = (radius_chosen**2).mean(axis=1)
            look[f"radius_{part}_all"] = radius.mean(axis=(1, 2))
            look[f"square_{part}_all"] = (radius**2).mean(axis=(1, 2))
        if self._noise is not None:
            off = self._off(step.score, step.now.expected)
            for per_cent in NOMINAL:
                within = off <= NormalDist().inv_cdf(0.5 + per_cent / 200) * self._noise
                look[f"coverage_{per_cent}"] = within.mean(axis=(1, 2))
                if per_cent == 95:
                    look["coverage_95_chosen"] = at_arm(within.astype(float), step.arm).mean(axis=1)
            off = self._off(score, step.instance.expected(shared_only))
            look["coverage_bound"] = (off <= self._bound).mean(axis=(1, 2))
        if self._probe is not None:
            look["error"] = np.abs(step.score.estimate - step.now.expected).mean(axis=(1, 2))
            self._look_at_cities(step, self._probe)
        self._samples.append((step.round, look))

    def _off(self, score: Score, truth: Array) -> Array:
        """Distance of the estimates from the truth, in units of s."""
        alpha = self._mesh.policy.alpha
        assert isinstance(alpha, float)
        s = score.radius / alpha
        return np.asarray(np.abs(score.estimate - truth) / np.maximum(s, 1e-300))

    def _look_at_cities(self, step: Step, probe: Array) -> None:
        """For the first seed and one context that no city meets: truth and interval of its best arm."""
        truth, score = step.instance.expected(probe)[0], self._mesh.score(probe)
        for city, best in enumerate(truth.argmax(axis=-1)):
            values = (truth[city, best], score.estimate[0, city, best], score.radius[0, city, best])
            fields = zip(("truth", "estimate", "radius"), map(float, values), strict=True)
            self.cities.append({"city": city, "round": step.round, **dict(fields)})

    def columns(self) -> dict[str, Array]:
        """By seed: radii at the end of the run, coverage over its second half."""
        return {
            name: np.mean([look[name] for at, look in self._samples if at >= self._from(name)], axis=0)
            for name in self._samples[-1][1]
        }

    def _from(self, name: str) -> float:
        return self._rounds * (0.5 if name.startswith("coverage") else 1.0 - END_SHARE)

    def curves(self) -> dict[str, Array]:
        """By mark: radius of the chosen arm, coverage of nominally 95 % intervals, error of the estimates."""
        return {
            name: np.array([float(look[name].mean()) for _, look in self._samples])
            for name in ("radius_whole", "coverage_95", "coverage_95_chosen", "error")
            if name in self._samples[-1][1]
        }
