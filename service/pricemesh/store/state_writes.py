"""What operators, gossip and snapshots write, inside a transaction that the caller opens and ends."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Column, Connection, case, insert, select

from pricemesh.store.acts import Act, record_act
from pricemesh.store.commands import (
    AddPeers,
    Command,
    DropOrigin,
    Probe,
    RemovePeers,
    SaveLetters,
    SaveSnapshot,
    SetControl,
    TrustKey,
    UpdateMesh,
)
from pricemesh.store.tables import controls, dropped, learner, letters, mesh, peers, trusted

PROBE_NAME = "probe"
PROBE_CHARACTERS = 64 * 1024  # several pages: a write into the last free page proves little


def save_state(connection: Connection, command: Command) -> None:
    """Commands without a result."""
    match command:
        case SetControl(name, value, at, act):
            connection.execute(controls.delete().where(controls.c.name == name))
            if value is not None:
                connection.execute(insert(controls).values(name=name, value=value, since=at))
            _record(connection, act)
        case SaveSnapshot(version, tallies, payload):
            connection.execute(learner.delete())
            connection.execute(
                insert(learner).values(id=1, version=version, tallies=tallies, payload=payload)
            )
        case SaveLetters(pairs, at, is_newer):
            if is_newer is not None:
                pairs = _newer_letters(connection, pairs, is_newer)
            rows = [{"origin": origin, "letter": wire, "received_at": at} for origin, wire in pairs]
            _replace(connection, letters.c.origin, rows)
        case UpdateMesh(epoch, memory):
            values: dict[str, Any] = {} if memory is None else {"memory": memory}
            if epoch is not None:  # never back: a retraction may have begun a later one meanwhile
                values["epoch"] = case((mesh.c.epoch < epoch, epoch), else_=mesh.c.epoch)
            connection.execute(mesh.update().values(**values))
        case AddPeers(addresses, at):
            _replace(connection, peers.c.address, [{"address": each, "since": at} for each in addresses])
        case RemovePeers(addresses):
            connection.execute(peers.delete().where(peers.c.address.in_(addresses)))
        case TrustKey(origin, key, act):
            _forget(connection, origin)
            _replace(connection, trusted.c.origin, [{"origin": origin, "key": key}])
            _record(connection, act)
        case DropOrigin(origin, at, readmitted, act):
            _forget(connection, origin)
            if not readmitted:
                connection.execute(insert(dropped).values(origin=origin, since=at))
            _record(connection, act)
        case Probe():
            row = {"name": PROBE_NAME, "value": "." * PROBE_CHARACTERS, "since": 0.0}
            connection.execute(insert(controls).values(row))
            connection.execute(controls.delete().where(controls.c.name == PROBE_NAME))


def _newer_letters(
    connection: Connection, pairs: Sequence[tuple[str, bytes]], is_newer: Callable[[bytes, bytes], bool]
) -> list[tuple[str, bytes]]:
    """Those that are newer than what is stored, which nobody changes before this transaction ends."""
    query = select(letters.c.origin, letters.c.letter).where(
        letters.c.origin.in_([origin for origin, _ in pairs])
    )
    stored = {row.origin: row.letter for row in connection.execute(query.with_for_update())}
    return [
        (origin, wire) for origin, wire in pairs if origin not in stored or is_newer(wire, stored[origin])
    ]


def _record(connection: Connection, act: Act | None) -> None:
    if act is not None:
        record_act(connection, act)


def _forget(connection: Connection, origin: str) -> None:
    """Delete the origin's letter, and the record that it was dropped."""
    for table in (letters, dropped):
        connection.execute(table.delete().where(table.c.origin == origin))


def _replace(connection: Connection, key: Column[str], rows: list[dict[str, Any]]) -> None:
    """Insert rows in place of those with the same key."""
    if rows:
        connection.execute(key.table.delete().where(key.in_([row[key.name] for row in rows])))
        connection.execute(insert(key.table), rows)
