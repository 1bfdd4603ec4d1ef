"""Steps that change a city's past: feedback is taken back, old rows leave, terms change."""

import sqlite3
from contextlib import closing
from random import Random
from typing import Any

from pricemesh.lab.torture.audit import Audit
from pricemesh.lab.torture.ledger import Violated
from pricemesh.lab.torture.operators import Operators
from pricemesh.lab.torture.past_terms import PastTerms
from pricemesh.lab.torture.prune_audit import Age
from pricemesh.lab.torture.reshapes import Reshape, draw_reshape, reshape_like
from pricemesh.lab.torture.simulated_city import SimulatedCity
from pricemesh.lab.torture.simulated_mesh import MAX_SECONDS_TO_STOP, SimulatedMesh
from pricemesh.lab.torture.stopped_city import DONE, Interruption, StoppedCity

SECONDS_TO_STOP = 3.0
MAX_RECORDS, SECONDS_TO_READ = 3, 0.1  # of the audit, before the terms change
MORE_AGE_SECONDS = (0.0, 3.0, 20.0)  # that pruned rows have beyond the window of feedback
TRIES_TO_LIFT, SECONDS_TO_LIFT = 5, 2.0  # a pin; another one may be under way
TERMS_QUERY = "SELECT terms FROM city"
NEVER_STARTED = "(was never started)"


class YearActions:
    def __init__(self, mesh: SimulatedMesh) -> None:
        self._mesh = mesh
        self._operators = Operators(mesh.callers)

    def retract(self, audit: Audit, rng: Random) -> str:
        return self._operators.retract(audit, rng)

    def lift_retraction(self, audit: Audit, rng: Random) -> str:
        return self._operators.lift(audit, rng)

    def prune(self, audit: Audit, rng: Random) -> str:
        city = audit.city
        if not self._stop(audit, rng):
            return NEVER_STARTED
        seconds = city.settings.feedback.window_seconds + rng.choice(MORE_AGE_SECONDS)
        age = Age(city.clock() - seconds, city.clock())
        command = StoppedCity(self._mesh, city, Interruption.draw(rng))
        end = command.prune(seconds, vacuum=rng.random() < 0.3)
        city.commands += 1
        gone = audit.follow_prune(age)
        self._start(city, rng)
        return f"{gone} decisions older than {seconds:g} s; {end}"

    def reshape(self, audit: Audit, rng: Random) -> str:
        """To other terms, or to those of another city; at times once more, as after an interruption."""
        ids = list(audit.ledger.decisions)
        self._mesh.callers.read_records(audit, rng.sample(ids, min(len(ids), MAX_RECORDS)))
        self._mesh.advance(SECONDS_TO_READ)
        if not self._stop(audit, rng):
            return NEVER_STARTED
        sections = audit.city.sections
        others = [city for city in self._mesh.cities if city is not audit.city]
        if rng.random() < 0.4:
            change = reshape_like(rng, sections, rng.choice(others).sections)
        else:
            change = draw_reshape(rng, sections)
        end = carry_out_reshape(self._mesh, audit, change, Interruption.draw(rng))
        if end != DONE and rng.random() < 0.5:
            end += f"; again: {carry_out_reshape(self._mesh, audit, change, Interruption())}"
        self._start(audit.city, rng)
        return f"{change}; {end}"

    def agree_on_terms(self) -> None:
        """Once no fault is left, all cities get the terms of one of them: then they hear each other again."""
        mesh, rng = self._mesh, Random(f"terms {self._mesh.plan.seed}")
        target = rng.choice(mesh.cities)
        for audit in mesh.audits:
            city = audit.city
            if city.settings.fingerprint == target.settings.fingerprint:
                continue
            self._lift_pin(audit)
            city.stop()
            mesh.wait(MAX_SECONDS_TO_STOP, lambda: not city.is_running)  # noqa: B023  # at once
            audit.catch_up()
            change = reshape_like(rng, city.sections, target.sections)
            end = carry_out_reshape(mesh, audit, change, Interruption())
            mesh.note(f"reshape {city.name}", f"{change}; {end}")
            if end != DONE:
                raise Violated("a command does what it is told", f"{city.name}: {end}")
            city.start()
        mesh.wait_until_serving(mesh.processes)
        for audit in mesh.audits:
            if len(audit.city.terms) > 1:
                mesh.callers.read_records(audit, list(audit.ledger.records))

    def _lift_pin(self, audit: Audit) -> None:
        """A price that is pinned has to stay on the ladder."""
        for _ in range(TRIES_TO_LIFT):
            self._mesh.callers.lift_pin(audit)
            self._mesh.advance(SECONDS_TO_LIFT)
            if not _read(audit.city, "SELECT 1 FROM controls WHERE name = 'pin'"):
                return

    def _stop(self, audit: Audit, rng: Random) -> bool:
        """Whether there is something that a command could work on."""
        city = audit.city
        if city.is_running and rng.random() < 0.7:
            city.stop()
            self._mesh.wait(SECONDS_TO_STOP, lambda: not city.is_running)
        city.kill()
        if not _read(city, "SELECT 1 FROM city"):
            return False
        audit.catch_up()
        return True

    def _start(self, city: SimulatedCity, rng: Random) -> None:
        if rng.random() < 0.9:
            city.start()


def carry_out_reshape(mesh: SimulatedMesh, audit: Audit, change: Reshape, interruption: Interruption) -> str:
    """The operator looks for which terms the database is made now, and gives the city that configuration."""
    city = audit.city
    ((before,),) = _read(city, TERMS_QUERY)
    end = StoppedCity(mesh, city, interruption).reshape(change)
    city.commands += 1
    ((after,),) = _read(city, TERMS_QUERY)
    if after != before:
        if after != len(city.terms) + 1:
            raise Violated("a command does what it is told", f"{city.name}: terms {after} follow {before}")
        terms = PastTerms.of(change.sections, change.renamed, change.filled)
        city.use_terms(change.sections, [*city.terms, terms])
        audit.follow_reshape()
    return end


def _read(city: SimulatedCity, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{city.database_path}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()
