"""What a change of terms reads and writes. The rows of decisions and feedback stay as they are."""

import json
from typing import Any

from sqlalchemy import Connection, func, insert, select

from pricemesh.core.terms import Terms
from pricemesh.store.acts import Act, ActKind, record_act
from pricemesh.store.commands import SaveSnapshot
from pricemesh.store.rewriting import mark_rewritten
from pricemesh.store.state_writes import save_state
from pricemesh.store.tables import base, city, controls, decisions, feedback, mesh, terms

_OF_PIN = controls.c.name == "pin"


def read_description(connection: Connection) -> dict[str, Any]:
    """Of the terms in force."""
    description: dict[str, Any] = json.loads(connection.scalar(select(city.c.description)) or "{}")
    return description


def lessons_by_price(connection: Connection) -> dict[float, int]:
    query = (
        select(decisions.c.price, func.count())
        .select_from(feedback.join(decisions, feedback.c.decision == decisions.c.number))
        .where(feedback.c.version.is_not(None))
        .group_by(decisions.c.price)
        .order_by(decisions.c.price)
    )
    return {price: count for price, count in connection.execute(query)}  # noqa: C416  # rows are no pairs


def read_pin(connection: Connection) -> dict[str, Any] | None:
    value = connection.scalar(select(controls.c.value).where(_OF_PIN))
    return None if value is None else json.loads(value)


def save_terms(
    connection: Connection,
    id_: int,
    new_terms: Terms,
    description: dict[str, Any],
    snapshot: SaveSnapshot,
    at: float,
) -> None:
    """In the caller's transaction, with the learner that has learned in these terms: the next start need
    not."""
    text = json.dumps(description)
    values = {"id": id_, "description": text, "change": json.dumps(new_terms.change), "since": at}
    connection.execute(insert(terms).values(values))
    connection.execute(city.update().values(description=text, terms=id_))
    mark_rewritten(connection)
    connection.execute(base.delete())
    connection.execute(mesh.update().values(memory="{}"))  # weights of peers, for each arm there was
    pin = read_pin(connection)
    if pin is not None:  # it names an arm, and arms have other numbers now
        value = json.dumps(pin | {"arm": new_terms.prices.index(pin["price"])})
        connection.execute(controls.update().where(_OF_PIN).values(value=value))
    save_state(connection, snapshot)
    detail = {"terms": id_, "prices": list(new_terms.prices)}
    record_act(connection, Act(at, ActKind.RESHAPE, detail=detail))
