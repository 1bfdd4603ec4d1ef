"""Faults of the database: their reason in one line, and those of direct calls to the driver."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult
from sqlalchemy.engine.interfaces import DBAPIModule
from sqlalchemy.exc import DBAPIError

NOTHING_CHANGED = "nothing was changed"
WHAT_TO_DO_IN_DOUBT = (
    "the commit may have happened nevertheless. Ask again under the same decision_id, or send the same "
    "feedback again: what was committed is not done twice"
)


def reason(fault: BaseException) -> str:
    """One line in the driver's words, without SQL or values."""
    cause = fault.orig if isinstance(fault, DBAPIError) else fault
    text = str(cause).strip()
    return text.splitlines()[0] if text else type(cause).__name__


def driver_rows(result: CursorResult[Any]) -> Sequence[Any]:
    """All rows as the driver's tuples. The driver may find a fault in any of them."""
    connection = result.connection
    try:
        rows: Sequence[Any] = result.cursor.fetchall()
    except connection.dialect.loaded_dbapi.Error as fault:
        raise driver_fault(connection, fault) from None
    finally:
        result.close()
    return rows


def driver_fault(connection: Connection, fault: DBAPIModule.Error) -> DBAPIError:
    """What SQLAlchemy would have raised, had the call gone through it. A connection that is lost is marked
    so, and the writer makes a new one."""
    dialect = connection.dialect
    driver: Any = connection.connection.dbapi_connection
    lost = dialect.is_disconnect(fault, driver, None)
    if lost:
        connection.invalidate(fault)
    error = DBAPIError.instance(
        None, None, fault, dialect.loaded_dbapi.Error, connection_invalidated=lost, dialect=dialect
    )
    assert isinstance(error, DBAPIError)
    return error
