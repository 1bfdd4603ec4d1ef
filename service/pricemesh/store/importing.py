"""An import in the tables: rows are staged in many commits, and begin to count in one.

The city is stopped: this process owns the database. An import that was interrupted goes on where it was.
"""

import hashlib
import json
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, select

from pricemesh.core.decision import IMPORTED
from pricemesh.errors import AlreadyImported, InvalidParameter
from pricemesh.store import schema
from pricemesh.store.acts import Act, ActKind, record_act
from pricemesh.store.maintenance import OwnedDatabase
from pricemesh.store.rewriting import REVISION_OF_YEARS
from pricemesh.store.tables import city, decisions, feedback, import_rows, imports

MAX_NAME_CHARACTERS = 200
_STAGED = ("id", "made_at", "arm", "price", "vectors", "propensity", "chance")


class StagedRows(NamedTuple):
    """As columns: rows of a file that have feedback."""

    id: list[str]
    made_at: list[float]
    arm: list[int]
    price: list[float]
    vectors: list[bytes]
    propensity: list[float]
    reward: list[float]
    sold: list[float | None]
    chance: list[float | None]
    version: list[float | None]


class Begun(NamedTuple):
    id: int
    line: int  # of the file, up to which rows are staged
    staged: int  # rows


def begin(connection: Connection, name: str, source: str, digest: str, at: float) -> Begun:
    """A new import, or the one of the same file that was interrupted. Refused where the file, or another
    file under this name, was imported before."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise InvalidParameter(f"the name of an import must have 1 to {MAX_NAME_CHARACTERS} characters")
    with connection.begin():
        alike = select(imports).where((imports.c.digest == digest) | (imports.c.name == name))
        for row in connection.execute(alike):
            if row.finished_at is not None and row.digest == digest:
                raise AlreadyImported(f"this file was imported before, as {row.name!r}")
            if row.digest == digest:
                progress = json.loads(row.progress)
                return Begun(row.id, progress["line"], progress["staged"])
            if row.name == name:
                raise InvalidParameter(f"another file was imported as {name!r}: give this one another --name")
        _refuse_beside_another(connection)
        id_ = 1 + (connection.scalar(select(sa.func.max(imports.c.id))) or 0)
        values = {"id": id_, "name": name, "source": source, "digest": digest, "started_at": at}
        progress = {"line": 0, "staged": 0}
        connection.execute(imports.insert().values(**values, row_count=0, progress=json.dumps(progress)))
        schema.require(connection, REVISION_OF_YEARS)
    return Begun(id_, 0, 0)


def _refuse_beside_another(connection: Connection) -> None:
    other = _interrupted(connection)
    if other is not None:
        raise InvalidParameter(
            f"the import {other.name!r} of {other.source} was interrupted: finish it first, by the same "
            "command, or drop it with `pricemesh import --abandon`"
        )


def _interrupted(connection: Connection) -> Any:
    return connection.execute(select(imports).where(imports.c.finished_at.is_(None))).first()


def stage(database: OwnedDatabase, import_: Begun, rows: StagedRows, line: int) -> Begun:
    """Store rows that do not count yet, in one commit with how far the file was read."""
    connection = database.connection
    with connection.begin():
        if rows.id:
            database.insert("import_rows", {"import_id": import_.id}, rows._asdict())
        after = Begun(import_.id, line, import_.staged + len(rows.id))
        progress = json.dumps({"line": after.line, "staged": after.staged})
        connection.execute(imports.update().where(imports.c.id == import_.id).values(progress=progress))
    return after


def finish(connection: Connection, import_: Begun, at: float) -> int:
    """Let all rows count, in one commit: decisions in the order of their times, feedback in that of the
    versions it had, if it had any. Rows whose id is a decision's already are left out. Returns how many
    count."""
    staged = import_rows.c
    with connection.begin():
        terms = connection.scalar(select(city.c.terms))
        fixed: dict[str, Any] = {
            "limited_by": "[]",
            "policy": IMPORTED,
            "learner_version": 0,
            "told_by": "",
            "terms": None if terms == 1 else terms,
            "import_id": import_.id,
        }
        is_known = select(decisions.c.id).where(decisions.c.id == staged.id).exists()
        rows = (
            select(*(staged[name] for name in _STAGED), *_constants(fixed))
            .where(staged.import_id == import_.id, ~is_known)
            .order_by(staged.made_at, staged.number)
        )
        connection.execute(decisions.insert().from_select([*_STAGED, *fixed], rows))
        version = connection.scalar(select(sa.func.max(feedback.c.version))) or 0
        order = (staged.version.is_(None), staged.version, decisions.c.number)
        place = sa.func.row_number().over(order_by=order)
        answer = (staged.reward, sa.literal(at), sa.false(), version + place, staged.sold)
        learned = (
            select(decisions.c.number, *answer)
            .select_from(import_rows.join(decisions, decisions.c.id == staged.id))
            .where(staged.import_id == import_.id, decisions.c.import_id == import_.id)
            .order_by(*order)
        )
        columns = ["decision", "reward", "received_at", "by_default", "version", "sold"]
        connection.execute(feedback.insert().from_select(columns, learned))
        connection.execute(import_rows.delete().where(staged.import_id == import_.id))
        imported = select(sa.func.count()).where(decisions.c.import_id == import_.id)
        count = connection.scalar(imported) or 0
        ended = imports.update().where(imports.c.id == import_.id)
        connection.execute(ended.values(finished_at=at, row_count=count))
        name = connection.scalar(select(imports.c.name).where(imports.c.id == import_.id))
        detail = {"import": name, "rows": count}
        record_act(connection, Act(at, ActKind.IMPORT, detail=detail))
    return count


def _constants(values: dict[str, Any]) -> list[sa.ColumnElement[Any]]:
    return [sa.literal(value, decisions.c[name].type) for name, value in values.items()]


def abandon(connection: Connection) -> str | None:
    """Forget the import that was interrupted, with its rows. Returns its name."""
    with connection.begin():
        row = _interrupted(connection)
        if row is None:
            return None
        connection.execute(import_rows.delete().where(import_rows.c.import_id == row.id))
        connection.execute(imports.delete().where(imports.c.id == row.id))
    name: str = row.name
    return name


def import_id_of(digest: str, line: int) -> str:
    """The id of a row without one: the same however often the file is read."""
    text = f"{digest}:{line}"
    return "i-" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
