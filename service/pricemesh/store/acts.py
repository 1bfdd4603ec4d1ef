"""What operators did: a row for each act, written in the transaction of the act itself. The newest MAX_ACTS
stay."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select

from pricemesh.store.tables import acts

MAX_ACTS = 10_000
OPERATOR = "operator"  # who acts in a city without keys, or on the command line


class ActKind(StrEnum):
    PIN = "pin"
    LIFT_PIN = "lift pin"
    FREEZE = "freeze"
    LIFT_FREEZE = "lift freeze"
    RETRACT = "retract"
    LIFT_RETRACTION = "lift retraction"
    IMPORT = "import"
    RESHAPE = "reshape"
    PRUNE = "prune"
    FORGET = "forget"
    DROP = "drop"
    READMIT = "readmit"
    TRUST = "trust"
    LEAVE = "leave"
    JOIN = "join"


class Act(NamedTuple):
    at: float
    kind: ActKind
    by: str = OPERATOR
    reason: str = ""
    detail: Mapping[str, Any] = {}


def record_act(connection: Connection, act: Act) -> None:
    row = {"at": act.at, "kind": act.kind.value, "made_by": act.by, "reason": act.reason}
    statement = insert(acts).values(**row, detail=json.dumps(dict(act.detail)))
    number = connection.execute(statement.returning(acts.c.number)).scalar_one()
    connection.execute(acts.delete().where(acts.c.number <= number - MAX_ACTS))


def read_acts(connection: Connection, since: float, until: float, limit: int) -> list[Act]:
    """Of this time, the newest first."""
    query = select(acts).where(acts.c.at >= since, acts.c.at < until)
    rows = connection.execute(query.order_by(acts.c.at.desc(), acts.c.number.desc()).limit(limit))
    return [Act(row.at, ActKind(row.kind), row.made_by, row.reason, json.loads(row.detail)) for row in rows]
