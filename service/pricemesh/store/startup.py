"""What a start checks and reads: the configuration that the database was made for, and the stored state."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select

from pricemesh.errors import InvalidParameter, NotStarted, SchemaChanged
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Position
from pricemesh.store.faults import reason
from pricemesh.store.pending import newest_position
from pricemesh.store.present_state import MeshRecord, PresentState
from pricemesh.store.tables import (
    city,
    controls,
    decisions,
    dropped,
    feedback,
    learner,
    letters,
    mesh,
    peers,
    trusted,
)


class StoredState(NamedTuple):
    """All that a start reads, except lessons."""

    version: int  # of the snapshot; 0 without one
    payload: bytes | None
    tallies: dict[str, Any]
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
        values = {"id": 1, "name": name, "description": json.dumps(description), "settled_through": 0}
        connection.execute(insert(city).values(values))
        return
    if changes := _changes(row, name, description):
        raise SchemaChanged(
            f"this database was made for another configuration ({'; '.join(changes)}). What was learned "
            "cannot be read in new terms: put the old values back, or name a new database.url"
        )


def check_description_of_reader(connection: Connection, name: str, description: dict[str, Any]) -> None:
    """As `check_description`, for a process that only reads: the rows mean what the configuration says."""
    row = connection.execute(select(city.c.name, city.c.description)).first()
    if row is None:
        raise NotStarted("no city has used this database yet: `pricemesh serve` makes its tables ready")
    if changes := _changes(row, name, description):
        raise SchemaChanged(
            f"this database was made for another configuration ({'; '.join(changes)}): give the "
            "configuration with which the city is served"
        )


def _changes(row: Any, name: str, description: dict[str, Any]) -> list[str]:
    before = {"city": row.name, **json.loads(row.description)}
    now = {"city": name, **description}
    return [f"{key} was {before[key]}, is now {now[key]}" for key in now if before[key] != now[key]]


def read_state(connection: Connection, runtime: Runtime) -> StoredState:
    position = newest_position(connection)  # also: a page that the next insert needs may be damaged
    snapshot = connection.execute(select(learner)).first()
    return StoredState(
        version=snapshot.version if snapshot else 0,
        payload=snapshot.payload if snapshot else None,
        tallies=json.loads(snapshot.tallies) if snapshot else {},
        present=read_present_state(connection, runtime),
        newest_row_at=_newest_row_at(connection),
        position=position,
    )


def read_present_state(connection: Connection, runtime: Runtime) -> PresentState:
    return PresentState(
        controls={row.name: (row.value, row.since) for row in connection.execute(select(controls))},
        mesh_record=_mesh_record(connection, runtime),
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
