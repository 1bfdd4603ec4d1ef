"""Marks a change of what the learner learns from, inside the transaction that makes it."""

from sqlalchemy import Connection

from pricemesh.store import schema
from pricemesh.store.tables import city, mesh

REVISION_OF_YEARS = "0005"  # whose software knows retractions, terms, imports and bases


def mark_rewritten(connection: Connection) -> int:
    """Snapshots made before it count no more, and letters go on under a new epoch. Returns how often the
    past was changed with it."""
    change = city.update().values(rewrites=city.c.rewrites + 1).returning(city.c.rewrites)
    rewrites: int = connection.execute(change).scalar_one()
    connection.execute(mesh.update().values(epoch=mesh.c.epoch + 1))
    schema.require(connection, REVISION_OF_YEARS)
    return rewrites
