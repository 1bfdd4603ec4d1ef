"""What a start checks and reads: the configuration that the database was made for, and the stored state."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, insert, select

from pricemesh.core.terms import Terms
from pricemesh.errors import InvalidParameter, NotStarted, SchemaChanged
from pricemesh.runtime import Runtime
from pricemesh.store.changed_terms import changes_in_words, how_to_reshape, reward_fault
from pricemesh.store.commands import Position
from pricemesh.store.faults import reason
from pricemesh.store.pending import newest_position
from pricemesh.store.present_state import MeshRecord, PresentState
from pricemesh.store.tables import (
    base,
    city,
    controls,
    decisions,
    dropped,
    feedback,
    learner,
    letters,
    mesh,
    peers,
    terms,
    trusted,
)


class StoredLearner(NamedTuple):
    """A snapshot, or the base that pruned rows left."""

    payload: bytes
    tallies: dict[str, Any]
    version: int


class Past(NamedTuple):
    """What a learner is made of beside the rows."""

    rewrites: int
    base: StoredLearner | None
    terms: int  # in force
    terms_by_id: dict[int, Terms]  # oldest first


class StoredState(NamedTuple):
    """All that a start reads, except lessons."""

    snapshot: StoredLearner | None
    past: Past
    present: PresentState
    newest_row_at: float | None  # Unix seconds; None without decisions
    position: Position  # of all rows


@contextmanager
def refuse_damaged_values() -> Iterator[None]:
    """Around everything that a start does with stored values. A damaged file may also make an error message
    of SQLite undecodable."""
    try:
        yield
    except InvalidParameter:  # the operator's, not the database's
        raise
    except (ValueError, LookupError, TypeError) as fault:
        raise NotStarted(
            "the database is damaged or not from pricemesh, because it has values that pricemesh does not "
            f"write ({type(fault).__name__}: {reason(fault)}): restore a backup, or name a new database.url"
        ) from None


def check_description(connection: Connection, name: str, description: dict[str, Any]) -> None:
    """Refuse a database that was made for another city, other arms or other features. A new database is made
    for these."""
    row = connection.execute(select(city.c.name, city.c.description)).first()
    if row is None:
        text = json.dumps(description)
        values = {"id": 1, "name": name, "description": text, "settled_through": 0}
        connection.execute(insert(city).values(values))
        connection.execute(insert(terms).values(id=1, description=text, change="{}", since=0.0))
        return
    if "bounds" not in (before := json.loads(row.description)):  # from before they were recorded
        _record_bounds(connection, {**before, "bounds": description["bounds"]})
    if changes := differences(row, name, description):
        raise _changed_terms(connection, changes, json.loads(row.description), description)


def _changed_terms(
    connection: Connection, changes: str, before: dict[str, Any], now: dict[str, Any]
) -> SchemaChanged:
    if (fault := reward_fault(before["reward"], now["reward"])) is not None:
        return SchemaChanged(fault)
    how = how_to_reshape(before, now)
    if now in [json.loads(each) for each in connection.scalars(select(terms.c.description))]:
        return SchemaChanged(
            "this is an earlier configuration of the city, and it was reshaped since. Start it with the "
            f"later one. What differs here: {changes}. To go back to this one, {how}"
        )
    return SchemaChanged(
        f"the configuration has changed since this database was made for it: {changes}. To keep what was "
        f"learned, {how}. Or put the old values back, or name a new database.url"
    )


def check_description_of_reader(connection: Connection, name: str, description: dict[str, Any]) -> None:
    """As `check_description`, for a process that only reads: the rows mean what the configuration says."""
    row = connection.execute(select(city.c.name, city.c.description)).first()
    if row is None:
        raise NotStarted("no city has used this database yet: `pricemesh serve` makes its tables ready")
    if changes := differences(row, name, description):
        raise SchemaChanged(
            f"this database was made for another configuration: give the one with which the city is served. "
            f"What differs here: {changes}"
        )


def check_terms(connection: Connection, terms: int) -> None:
    """Refuse to go on in terms that are not the city's any more."""
    if connection.scalar(select(city.c.terms)) != terms:
        raise SchemaChanged(
            "the city has other arms or features since `pricemesh reshape`: this process has to be started "
            "again, with the configuration of the new terms"
        )


def differences(row: Any, name: str, description: dict[str, Any]) -> str:
    """From what a database was made for to a configuration, in words; empty where there are none. Another
    city's database is refused."""
    if row.name != name:
        raise SchemaChanged(
            f"this database belongs to the city {row.name}, not to {name}: name another one in database.url"
        )
    before = {"bounds": description["bounds"], **json.loads(row.description)}
    if before == description:
        return ""
    return "; ".join(changes_in_words(before, description, Terms.of(description, {}))) or "other values"


def _record_bounds(connection: Connection, description: dict[str, Any]) -> None:
    text = json.dumps(description)
    connection.execute(city.update().values(description=text))
    connection.execute(terms.update().values(description=text))


def read_state(connection: Connection, runtime: Runtime) -> StoredState:
    position = newest_position(connection)  # also: a page that the next insert needs may be damaged
    return StoredState(
        snapshot=_stored_learner(connection, learner),
        past=read_past(connection),
        present=read_present_state(connection, runtime),
        newest_row_at=_newest_row_at(connection),
        position=position,
    )


def read_past(connection: Connection) -> Past:
    rewrites, in_force = connection.execute(select(city.c.rewrites, city.c.terms)).one()
    stored = connection.execute(select(terms).order_by(terms.c.id))
    return Past(
        rewrites,
        _stored_learner(connection, base),
        in_force,
        {row.id: Terms.of(json.loads(row.description), json.loads(row.change)) for row in stored},
    )


def _stored_learner(connection: Connection, table: Table) -> StoredLearner | None:
    row = connection.execute(select(table)).first()
    return None if row is None else StoredLearner(row.payload, json.loads(row.tallies), row.version)


def read_present_state(connection: Connection, runtime: Runtime) -> PresentState:
    return PresentState(
        controls={row.name: (row.value, row.since) for row in connection.execute(select(controls))},
        mesh_record=_mesh_record(connection, runtime),
        rewrites=connection.scalar(select(city.c.rewrites)) or 0,
    )


def _newest_row_at(connection: Connection) -> float | None:
    """When the last decision or feedback was written. Not the latest time of all: a clock may have been wrong
    for a while."""
    newest = [
        connection.scalar(select(at).order_by(number.desc()).limit(1))
        for at, number in (
            (decisions.c.made_at, decisions.c.number),
            (feedback.c.received_at, feedback.c.number),
        )
    ]
    return max((float(at) for at in newest if at is not None), default=None)


def _mesh_record(connection: Connection, runtime: Runtime) -> MeshRecord:
    """A new database gets epoch 1 and a new seed."""
    row = connection.execute(select(mesh)).first()
    if row is None:
        connection.execute(insert(mesh).values(id=1, epoch=1, seed=runtime.random_bytes(32), memory="{}"))
        row = connection.execute(select(mesh)).one()
    return MeshRecord(
        epoch=row.epoch,
        seed=row.seed,
        memory=json.loads(row.memory),
        letters=[(each.letter, each.received_at) for each in connection.execute(select(letters))],
        peers=list(connection.scalars(select(peers.c.address))),
        trusted={each.origin: bytes(each.key) for each in connection.execute(select(trusted))},
        dropped=list(connection.scalars(select(dropped.c.origin))),
    )
