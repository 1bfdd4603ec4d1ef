"""Steps that change a city's past: feedback is taken back, old rows leave, terms change."""

from random import Random

from pricemesh.lab.torture.audit import Audit
from pricemesh.lab.torture.operators import Operators
from pricemesh.lab.torture.simulated_mesh import SimulatedMesh


class YearActions:
    def __init__(self, mesh: SimulatedMesh) -> None:
        self._mesh = mesh
        self._operators = Operators(mesh.callers)

    def retract(self, audit: Audit, rng: Random) -> str:
        return self._operators.retract(audit, rng)

    def lift_retraction(self, audit: Audit, rng: Random) -> str:
        return self._operators.lift(audit, rng)
