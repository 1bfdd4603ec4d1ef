"""The cost of a lying city to the honest ones under NetPool: `make liars`, minutes on two cores.

City 0 sends its summaries with the sign of h flipped, well-formed otherwise. R/T per honest city, as a ratio
to the same cities without the data of city 0.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from functools import partial
from typing import Any

import numpy as np

from pricemesh.core.policies import make_policy
from pricemesh.core.summary import Parts
from pricemesh.lab.jobs import run_jobs
from pricemesh.lab.mesh import Mesh
from pricemesh.lab.worlds import Linear

SEEDS, ROUNDS = range(10), 1000
CASES = ("without it", "honest", "liar, robust", "liar, equal", "alone")


def summarise_as(case: str, summarise: partial[Parts]) -> Parts:
    parts = {name: value.copy() for name, value in summarise().items()}
    if case == "without it":
        for value in parts.values():
            value[:, :, 0] = 0.0
    elif case.startswith("liar"):
        parts["response"][:, :, 0] *= -1.0
    return parts


def honest_regret(job: tuple[int, str]) -> float:
    """R/T per honest city, mean over seeds."""
    cities, case = job
    name = "disjoint" if case == "alone" else "netpool"
    settings: dict[str, Any] = {} if case == "alone" else {"alpha": 0.7, "ridge": 1.0, "pending": "off"}
    settings |= {"trust": "equal"} if case.endswith("equal") else {}
    mesh = Mesh(Linear(cities=cities), make_policy(name, **settings), SEEDS)
    learner = mesh.blocks[0].learner
    if learner.fields:
        learner.summarise = partial(summarise_as, case, partial(type(learner).summarise, learner))  # type: ignore[method-assign]
    regret = [step.regret[:, 1:].mean() for step in mesh.play(ROUNDS)]
    return float(np.mean(regret))


def main() -> None:
    jobs = [(cities, case) for cities in (12, 5) for case in CASES]
    results = {jobs[index]: regret for index, regret in run_jobs(honest_regret, jobs)}
    print("| cities | R/T without the liar | " + " | ".join(CASES[1:]) + " |")
    print("|---|" + "---|" * len(CASES))
    for cities in (12, 5):
        base = results[cities, CASES[0]]
        ratios = [f"{results[cities, case] / base:.3f}" for case in CASES[1:]]
        print(f"| {cities} | {base:.4f} | " + " | ".join(ratios) + " |")
    print(f"\nT={ROUNDS}, {len(SEEDS)} seeds; columns after the first are ratios to it.")


if __name__ == "__main__":
    main()
